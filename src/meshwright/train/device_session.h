// DeviceSession: the devices of a run and its compiled programs.
#ifndef MESHWRIGHT_TRAIN_DEVICE_SESSION_H_
#define MESHWRIGHT_TRAIN_DEVICE_SESSION_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshwright/core/mesh.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"

namespace mw::ops {
struct Target;
}

namespace mw::train {

struct DeviceSession {
  std::shared_ptr<runtime::Client> client;
  // Null when the cache folder cannot be made.
  std::unique_ptr<runtime::ExecutableCache> cache;
};

// Opens what `device` names ("cpu", "cpu:8", "tpu", "gpu", a plugin's path) for `mesh`, which may
// be empty: a CPU gets as many virtual devices as the mesh has. `note` hears of a cache that
// cannot be had, and of what is damaged in it, from any thread while the session is used.
//
// Errors: what the plugin reports; FailedPrecondition for one without devices; InvalidArgument
// when there are not as many as the mesh has.
absl::StatusOr<DeviceSession> OpenDeviceSession(const std::string& device, const Mesh& mesh,
                                                const std::function<void(std::string_view)>& note);

// Makes `target` that of programs for `client`'s devices, whose plugin learns of the kernels that
// they may call; what is no matter of devices stays.
//
// Errors: what the plugin reports.
absl::Status SetDevices(const runtime::Client& client, ops::Target* target);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_DEVICE_SESSION_H_
