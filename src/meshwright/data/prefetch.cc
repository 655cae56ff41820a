#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "meshwright/data/data_iterator.h"

namespace mw::data {
namespace {

class PrefetchIterator : public BatchIterator {
 public:
  PrefetchIterator(std::unique_ptr<BatchIterator> source, size_t depth)
      : source_(std::move(source)),
        depth_(depth),
        state_(source_->state()),
        thread_([this](std::stop_token stop) { Produce(std::move(stop)); }) {}

  ~PrefetchIterator() override {
    thread_.request_stop();
    changed_.notify_all();
    thread_.join();
  }

  absl::StatusOr<Batch> Next() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty(); });
    // A failure is the source's last word and stays for later calls.
    if (!queue_.front().batch.ok()) return queue_.front().batch.status();
    Item item = std::move(queue_.front());
    queue_.pop_front();
    state_ = item.state;
    lock.unlock();
    changed_.notify_all();
    return std::move(item.batch);
  }

  DataIteratorState state() const override {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  struct Item {
    absl::StatusOr<Batch> batch;
    DataIteratorState state;
  };

  void Produce(std::stop_token stop) {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [&] { return queue_.size() < depth_; })) return;
      }
      Item item{source_->Next(), {}};
      item.state = source_->state();
      const bool failed = !item.batch.ok();
      {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(item));
      }
      changed_.notify_all();
      if (failed) return;
    }
  }

  std::unique_ptr<BatchIterator> source_;
  const size_t depth_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Item> queue_;
  DataIteratorState state_;
  // Last: it uses everything above.
  std::jthread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BatchIterator>> Prefetch(std::unique_ptr<BatchIterator> source,
                                                        int depth) {
  if (source == nullptr || depth < 1) {
    return absl::InvalidArgumentError(
        fmt::format("prefetching {} batches is not possible; at least 1 is", depth));
  }
  return std::make_unique<PrefetchIterator>(std::move(source), static_cast<size_t>(depth));
}

}  // namespace mw::data
