#include "meshwright/tools/command.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/device_spec.h"

namespace mw::tools {

void CommandContext::Note(std::string_view sentence) const {
  if (!flags.quiet) fmt::print(stderr, "meshwright: {}\n", sentence);
}

absl::StatusOr<DeviceSession> OpenDevice(const CommandContext& context) {
  MW_ASSIGN_OR_RETURN(const runtime::DeviceSpec spec,
                      runtime::ParseDeviceSpec(context.flags.device));
  // Plugins report their start to stderr; warnings and errors still come.
  setenv("TF_CPP_MIN_LOG_LEVEL", "1", /*overwrite=*/0);
  DeviceSession session;
  MW_ASSIGN_OR_RETURN(session.client, runtime::Client::Create(spec));
  if (session.client->devices().empty()) {
    return absl::FailedPreconditionError(
        fmt::format("--device {}: the plugin has no devices", context.flags.device));
  }
  if (spec.num_devices > 1) {
    context.Note(fmt::format("without a mesh 1 of the {} devices is used", spec.num_devices));
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

}  // namespace mw::tools
