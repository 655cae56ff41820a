#include "meshwright/runtime/buffer_reaper.h"

#include <iterator>
#include <utility>

namespace mw::runtime {

BufferReaper::~BufferReaper() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BufferReaper::Take(std::vector<Buffer>& buffers) {
  if (buffers.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      std::swap(waiting_, buffers);
    } else {
      waiting_.insert(waiting_.end(), std::make_move_iterator(buffers.begin()),
                      std::make_move_iterator(buffers.end()));
      buffers.clear();
    }
  }
  changed_.notify_all();
}

void BufferReaper::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !busy_; });
}

void BufferReaper::Run() {
  std::vector<Buffer> doomed;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::swap(doomed, waiting_);
    busy_ = true;
    lock.unlock();
    doomed.clear();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace mw::runtime
