#include "meshwright/tools/command.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/tools/print.h"

namespace mw::tools {
namespace {

// Notes list rows and files of their own accord; more than this is not read.
constexpr size_t kMostNoteBytes = 16384;

}  // namespace

void CommandContext::Note(std::string_view sentence) const {
  if (!flags.quiet) PrintError("meshwright: {}\n", Abridged(sentence, kMostNoteBytes));
}

absl::StatusOr<DeviceSession> OpenDevice(const CommandContext& context) {
  MW_ASSIGN_OR_RETURN(runtime::DeviceSpec spec, runtime::ParseDeviceSpec(context.flags.device));
  const int64_t mesh_devices = context.config.engine.mesh.partition.mesh.num_devices();
  // A CPU has as many virtual devices as the mesh wants.
  const bool has_virtual = spec.plugin != "tpu" && spec.plugin != "gpu";
  if (has_virtual && spec.num_devices == 0 && mesh_devices > 1) {
    spec.num_devices = static_cast<int>(mesh_devices);
  }
  // Plugins report their start to stderr; warnings and errors still come.
  setenv("TF_CPP_MIN_LOG_LEVEL", "1", /*overwrite=*/0);
  DeviceSession session;
  MW_ASSIGN_OR_RETURN(session.client, runtime::Client::Create(spec));
  if (session.client->devices().empty()) {
    return absl::FailedPreconditionError(
        fmt::format("--device {}: the plugin has no devices", context.flags.device));
  }
  const auto num_devices = static_cast<int64_t>(session.client->devices().size());
  if (mesh_devices > 1 && num_devices != mesh_devices) {
    return absl::InvalidArgumentError(
        fmt::format("mesh {} has {} devices but {} has {}; choose sizes whose product is {}",
                    context.config.engine.mesh.partition.mesh.ToString(), mesh_devices,
                    context.flags.device, num_devices, num_devices));
  }
  auto cache = runtime::ExecutableCache::Open();
  if (cache.ok()) {
    session.cache = *std::move(cache);
  } else {
    context.Note(
        fmt::format("compiled programs are not kept: {}", std::string(cache.status().message())));
  }
  return session;
}

absl::Status RequireOneDevice(const CommandContext& context, std::string_view command) {
  const Mesh& mesh = context.config.engine.mesh.partition.mesh;
  if (mesh.empty()) return absl::OkStatus();
  return absl::UnimplementedError(
      fmt::format("{} runs on one device in this version, not on mesh {}; leave out --mesh",
                  command, mesh.ToString()));
}

}  // namespace mw::tools
