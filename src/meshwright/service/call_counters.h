// CallCounters: how calls of the service ended, and how many are under way.
#ifndef MESHWRIGHT_SERVICE_CALL_COUNTERS_H_
#define MESHWRIGHT_SERVICE_CALL_COUNTERS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace mw::service {

// Thread-safe.
class CallCounters {
 public:
  struct Totals {
    std::map<std::pair<std::string, std::string>, int64_t> ended;  // by method and code
    int64_t num_under_way = 0;
  };

  // False where `most` calls are under way; then nothing has begun.
  bool Begin(int64_t most) {
    const std::lock_guard lock(mutex_);
    if (totals_.num_under_way >= most) return false;
    ++totals_.num_under_way;
    return true;
  }
  void End() {
    const std::lock_guard lock(mutex_);
    if (--totals_.num_under_way == 0) none_.notify_all();
  }
  // Blocks until no call is under way, or for so long.
  void AwaitNone(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    none_.wait_for(lock, patience, [&] { return totals_.num_under_way == 0; });
  }
  void Count(const std::string& method, const std::string& code) {
    const std::lock_guard lock(mutex_);
    ++totals_.ended[{method, code}];
  }
  Totals totals() const {
    const std::lock_guard lock(mutex_);
    return totals_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable none_;
  Totals totals_;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_CALL_COUNTERS_H_
