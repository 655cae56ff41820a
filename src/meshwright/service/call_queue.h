// CallQueue: calls on one trainer, one at a time and in their order.
#ifndef MESHWRIGHT_SERVICE_CALL_QUEUE_H_
#define MESHWRIGHT_SERVICE_CALL_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace mw::service {

// How long a call may wait for its turn. Once it has begun, it is carried out whole.
struct CallLimits {
  std::chrono::system_clock::time_point deadline = std::chrono::system_clock::time_point::max();
  // Whether nobody waits for the call any more; null = never. Asked every 50 ms.
  std::function<bool()> cancelled = nullptr;
};

// Thread-safe.
class CallQueue {
 public:
  // The right to act, until it is destroyed.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (queue_ != nullptr) queue_->Leave();
    }

   private:
    friend class CallQueue;
    explicit Turn(CallQueue* queue) : queue_(queue) {}
    CallQueue* queue_;
  };

  // Waits for its turn. Errors: DeadlineExceeded or Cancelled when that took too long;
  // Unavailable after Close.
  absl::StatusOr<Turn> Enter(const CallLimits& limits);
  // Its turn if nobody has one or waits for one, and the queue is open.
  std::optional<Turn> TryEnter();

  // Lets no further call in. Those that wait already still get their turns.
  void Close();
  // Blocks until nobody has a turn or waits for one. REQUIRES: Close was called.
  void AwaitEmpty();

  size_t size() const;  // with a turn, and waiting

 private:
  void Leave();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Tickets, the one whose turn it is first.
  std::deque<uint64_t> tickets_;
  uint64_t next_ticket_ = 0;
  bool closed_ = false;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_CALL_QUEUE_H_
