#include "meshwright/service/record_log.h"

#include <algorithm>

namespace mw::service {

void RecordLog::Append(const train::MetricRecord& record) {
  const std::lock_guard lock(mutex_);
  records_.push_back(record);
  if (records_.size() > kMost) records_.pop_front();
  ++num_appended_;
  changed_.notify_all();
}

void RecordLog::Clear() {
  const std::lock_guard lock(mutex_);
  records_.clear();
}

void RecordLog::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool RecordLog::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::vector<train::MetricRecord> RecordLog::Read(uint64_t& next,
                                                 std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return closed_ || num_appended_ > next; });
  const uint64_t num_new = num_appended_ - std::min(next, num_appended_);
  const auto kept = static_cast<std::ptrdiff_t>(std::min<uint64_t>(num_new, records_.size()));
  next = num_appended_;
  return {records_.end() - kept, records_.end()};
}

std::optional<train::MetricRecord> RecordLog::Latest() const {
  const std::lock_guard lock(mutex_);
  if (records_.empty()) return std::nullopt;
  return records_.back();
}

}  // namespace mw::service
