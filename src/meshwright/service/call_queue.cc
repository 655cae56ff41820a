#include "meshwright/service/call_queue.h"

#include <algorithm>

namespace mw::service {
namespace {

// How often a call that waits looks whether somebody still wants it.
constexpr std::chrono::milliseconds kPoll(50);

}  // namespace

absl::StatusOr<CallQueue::Turn> CallQueue::Enter(const CallLimits& limits) {
  std::unique_lock lock(mutex_);
  if (closed_) return absl::UnavailableError("the worker takes no further calls: it is draining");
  const uint64_t ticket = next_ticket_++;
  tickets_.push_back(ticket);
  const auto give_up = [&](absl::Status status) {
    std::erase(tickets_, ticket);
    changed_.notify_all();
    return status;
  };
  while (true) {
    // Looked at also where it is its turn at once: a call that is late does nothing.
    const auto now = std::chrono::system_clock::now();
    if (now >= limits.deadline) {
      return give_up(absl::DeadlineExceededError(
          "the call's deadline was over before its turn came; it changed nothing"));
    }
    if (limits.cancelled && limits.cancelled()) {
      return give_up(
          absl::CancelledError("the call was cancelled before its turn came; it changed nothing"));
    }
    if (tickets_.front() == ticket) return Turn(this);
    changed_.wait_until(lock, std::min(limits.deadline, now + kPoll));
  }
}

std::optional<CallQueue::Turn> CallQueue::TryEnter() {
  const std::lock_guard lock(mutex_);
  if (closed_ || !tickets_.empty()) return std::nullopt;
  tickets_.push_back(next_ticket_++);
  return Turn(this);
}

void CallQueue::Leave() {
  const std::lock_guard lock(mutex_);
  tickets_.pop_front();
  changed_.notify_all();
}

void CallQueue::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void CallQueue::AwaitEmpty() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tickets_.empty(); });
}

size_t CallQueue::size() const {
  const std::lock_guard lock(mutex_);
  return tickets_.size();
}

}  // namespace mw::service
