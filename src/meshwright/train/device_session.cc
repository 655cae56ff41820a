#include "meshwright/train/device_session.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/kernels/registry.h"
#include "meshwright/ops/op_def.h"
#include "meshwright/runtime/device_spec.h"

namespace mw::train {

namespace {

// Programs for CPUs may call kernels; their plugin has to know them before it compiles one.
absl::Status RegisterKernels(const runtime::Client& client) {
  if (client.platform_name() != "cpu") return absl::OkStatus();
  return kernels::RegisterCpuKernels(&client.plugin());
}

}  // namespace

absl::StatusOr<DeviceSession> OpenDeviceSession(const std::string& device, const Mesh& mesh,
                                                const std::function<void(std::string_view)>& note) {
  MW_ASSIGN_OR_RETURN(runtime::DeviceSpec spec, runtime::ParseDeviceSpec(device));
  const int64_t mesh_devices = mesh.num_devices();
  // A CPU has as many virtual devices as the mesh wants.
  const bool has_virtual = spec.plugin != "tpu" && spec.plugin != "gpu";
  if (has_virtual && spec.num_devices == 0 && mesh_devices > 1) {
    spec.num_devices = static_cast<int>(mesh_devices);
  }
  // Plugins report their start to stderr; warnings and errors still come.
  setenv("TF_CPP_MIN_LOG_LEVEL", "1", /*overwrite=*/0);
  DeviceSession session;
  MW_ASSIGN_OR_RETURN(session.client, runtime::Client::Create(spec));
  MW_RETURN_IF_ERROR(RegisterKernels(*session.client));
  const auto num_devices = static_cast<int64_t>(session.client->devices().size());
  if (num_devices == 0) {
    return absl::FailedPreconditionError(
        fmt::format("--device {}: the plugin has no devices", device));
  }
  if (mesh_devices > 1 && num_devices != mesh_devices) {
    return absl::InvalidArgumentError(
        fmt::format("mesh {} has {} devices but {} has {}; choose sizes whose product is {}",
                    mesh.ToString(), mesh_devices, device, num_devices, num_devices));
  }
  runtime::ExecutableCacheOptions cache_options;
  cache_options.note = note;
  auto cache = runtime::ExecutableCache::Open(cache_options);
  if (cache.ok()) {
    session.cache = *std::move(cache);
  } else if (note) {
    note(fmt::format("compiled programs are not kept: {}", std::string(cache.status().message())));
  }
  return session;
}

absl::Status SetDevices(const runtime::Client& client, ops::Target* target) {
  target->platform = client.platform_name();
  target->device_kind = client.device_kind();
  return RegisterKernels(client);
}

}  // namespace mw::train
