// RecordLog: the newest records of steps, for readers on other threads.
#ifndef MESHWRIGHT_SERVICE_RECORD_LOG_H_
#define MESHWRIGHT_SERVICE_RECORD_LOG_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "meshwright/train/metrics.h"

namespace mw::service {

// Thread-safe.
class RecordLog {
 public:
  static constexpr size_t kMost = train::MetricsRecorder::kWindow;

  void Append(const train::MetricRecord& record);
  // After a restore: steps that may be made again are forgotten. Readers go on with the new ones.
  void Clear();
  // Nothing will follow.
  void Close();
  bool closed() const;

  // Those kept from the `next`-th of all appended on, and moves `next` beyond them. Blocks up to
  // `patience` while there is none; returns at once when closed.
  std::vector<train::MetricRecord> Read(uint64_t& next, std::chrono::milliseconds patience);
  std::optional<train::MetricRecord> Latest() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<train::MetricRecord> records_;
  uint64_t num_appended_ = 0;
  bool closed_ = false;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_RECORD_LOG_H_
