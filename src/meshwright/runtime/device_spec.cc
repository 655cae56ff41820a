#include "meshwright/runtime/device_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/runtime/plugin.h"

namespace mw::runtime {
namespace {

constexpr int kMaxDevices = 4096;

bool IsPath(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".so");
}

}  // namespace

std::string DeviceSpec::ToString() const {
  return num_devices == 0 ? plugin : fmt::format("{}:{}", plugin, num_devices);
}

absl::StatusOr<DeviceSpec> ParseDeviceSpec(std::string_view text) {
  DeviceSpec spec;
  std::string_view name = text;
  std::string_view count;
  const size_t colon = text.rfind(':');
  // A colon inside a path's folder name is part of the path.
  const bool has_count =
      colon != std::string_view::npos && text.find('/', colon) == std::string_view::npos;
  if (has_count) {
    name = text.substr(0, colon);
    count = text.substr(colon + 1);
  }
  const auto& known = KnownPluginNames();
  if (!IsPath(name) && std::find(known.begin(), known.end(), name) == known.end()) {
    return absl::InvalidArgumentError(
        fmt::format("unknown device '{}': use cpu[:N], cpu-xla[:N], tpu, gpu or a path to a PJRT "
                    "plugin's .so[:N]{}",
                    Excerpt(text), NearestNote(name, known)));
  }
  spec.plugin = std::string(name);
  if (!has_count) return spec;
  const auto [end, error] =
      std::from_chars(count.data(), count.data() + count.size(), spec.num_devices);
  if (error != std::errc() || end != count.data() + count.size() || spec.num_devices < 1 ||
      spec.num_devices > kMaxDevices) {
    return absl::InvalidArgumentError(
        fmt::format("device '{}': the number of devices '{}' is not an integer in 1..{}",
                    Excerpt(text), Excerpt(count), kMaxDevices));
  }
  if (name == "tpu" || name == "gpu") {
    return absl::InvalidArgumentError(
        fmt::format("device '{}': only CPU plugins have a number of virtual devices; use '{}' for "
                    "all devices of this machine",
                    text, name));
  }
  return spec;
}

}  // namespace mw::runtime
