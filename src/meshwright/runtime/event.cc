#include "meshwright/runtime/event.h"

#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/pjrt_api.h"

namespace mw::runtime {
namespace {

void DestroyEvent(const PJRT_Api* api, PJRT_Event* event) {
  MW_PJRT_ARGS(PJRT_Event_Destroy_Args, args);
  args.event = event;
  // Destruction has no caller who could act on an error.
  MW_PJRT_CALL(api, PJRT_Event_Destroy, args).IgnoreError();
}

struct Callback {
  const PJRT_Api* api;
  std::function<void(const absl::Status&)> function;
};

// noexcept: an exception must not unwind into the plugin.
void RunCallback(PJRT_Error* error, void* user_arg) noexcept {
  std::unique_ptr<Callback> callback(static_cast<Callback*>(user_arg));
  callback->function(StatusFromError(callback->api, error));
}

struct HeldUntilDone {
  const PJRT_Api* api;
  PJRT_Event* event;
  std::shared_ptr<const void> keep_alive;
};

void ReleaseHeld(PJRT_Error* error, void* user_arg) noexcept {
  std::unique_ptr<HeldUntilDone> held(static_cast<HeldUntilDone*>(user_arg));
  StatusFromError(held->api, error).IgnoreError();
  DestroyEvent(held->api, held->event);
}

}  // namespace

Event::Event(Event&& other) noexcept
    : api_(other.api_),
      event_(std::exchange(other.event_, nullptr)),
      keep_alive_(std::move(other.keep_alive_)) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    Release();
    api_ = other.api_;
    event_ = std::exchange(other.event_, nullptr);
    keep_alive_ = std::move(other.keep_alive_);
  }
  return *this;
}

void Event::Release() {
  PJRT_Event* event = std::exchange(event_, nullptr);
  std::shared_ptr<const void> keep_alive = std::move(keep_alive_);
  if (event == nullptr) return;
  if (keep_alive != nullptr) {
    auto* held = new HeldUntilDone{api_, event, std::move(keep_alive)};
    MW_PJRT_ARGS(PJRT_Event_OnReady_Args, args);
    args.event = event;
    args.callback = &ReleaseHeld;
    args.user_arg = held;
    if (MW_PJRT_CALL(api_, PJRT_Event_OnReady, args).ok()) return;
    // Without a callback the only safe moment to let go is after the work.
    MW_PJRT_ARGS(PJRT_Event_Await_Args, await);
    await.event = event;
    MW_PJRT_CALL(api_, PJRT_Event_Await, await).IgnoreError();
    delete held;
  }
  DestroyEvent(api_, event);
}

absl::Status Event::Await() const {
  if (event_ == nullptr) return absl::OkStatus();
  MW_PJRT_ARGS(PJRT_Event_Await_Args, args);
  args.event = event_;
  return MW_PJRT_CALL(api_, PJRT_Event_Await, args);
}

absl::StatusOr<bool> Event::IsReady() const {
  if (event_ == nullptr) return true;
  MW_PJRT_ARGS(PJRT_Event_IsReady_Args, args);
  args.event = event_;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api_, PJRT_Event_IsReady, args));
  return args.is_ready;
}

absl::Status Event::OnReady(std::function<void(const absl::Status&)> callback) const {
  if (event_ == nullptr) {
    callback(absl::OkStatus());
    return absl::OkStatus();
  }
  auto closure = std::make_unique<Callback>(Callback{api_, std::move(callback)});
  MW_PJRT_ARGS(PJRT_Event_OnReady_Args, args);
  args.event = event_;
  args.callback = &RunCallback;
  args.user_arg = closure.get();
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api_, PJRT_Event_OnReady, args));
  closure.release();  // RunCallback owns it now, or has already freed it
  return absl::OkStatus();
}

}  // namespace mw::runtime
