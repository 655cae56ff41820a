// Event: completion of asynchronous work on a device.
#ifndef MESHWRIGHT_RUNTIME_EVENT_H_
#define MESHWRIGHT_RUNTIME_EVENT_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct PJRT_Api;
struct PJRT_Event;

namespace mw::runtime {

// Owns a PJRT event. Movable; a default-constructed event is already complete.
// Destroying an event neither waits nor cancels. Thread-safe except for moves.
class Event {
 public:
  Event() = default;
  // Takes ownership of `event` (may be null: complete). What `keep_alive` owns
  // lives until the work is done, even when the Event is destroyed before.
  Event(const PJRT_Api* api, PJRT_Event* event, std::shared_ptr<const void> keep_alive = nullptr)
      : api_(api), event_(event), keep_alive_(std::move(keep_alive)) {}
  ~Event() { Release(); }
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Adds what must live until the work is done. REQUIRES: nothing was given before.
  void KeepAlive(std::shared_ptr<const void> owner) { keep_alive_ = std::move(owner); }

  // Blocks until the work is done and returns its error, if it failed.
  absl::Status Await() const;

  // Whether the work is done (or failed): Await would not block.
  absl::StatusOr<bool> IsReady() const;

  // Calls `callback` once, when the work is done: at once on this thread if it
  // already is, else on a thread of the plugin. The callback must be quick, must
  // not wait for device work and must not throw (that ends the process).
  absl::Status OnReady(std::function<void(const absl::Status&)> callback) const;

 private:
  void Release();

  const PJRT_Api* api_ = nullptr;
  PJRT_Event* event_ = nullptr;
  std::shared_ptr<const void> keep_alive_;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_EVENT_H_
