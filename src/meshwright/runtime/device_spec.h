// DeviceSpec: the value of a `--device` flag.
#ifndef MESHWRIGHT_RUNTIME_DEVICE_SPEC_H_
#define MESHWRIGHT_RUNTIME_DEVICE_SPEC_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace mw::runtime {

struct DeviceSpec {
  // What Plugin::Load takes: "cpu", "cpu-xla", "tpu", "gpu" or a path to a .so.
  std::string plugin = "cpu";
  // Virtual devices of a CPU plugin; 0 leaves the number to the plugin.
  int num_devices = 0;

  // "cpu:8".
  std::string ToString() const;
  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

// Parses `cpu[:N]`, `cpu-xla[:N]`, `tpu`, `gpu` or `PATH.so[:N]`.
//
// Errors: InvalidArgument for an unknown name (with the nearest known one), for
// an N that is not an integer in 1..4096, and for an N after tpu or gpu, whose
// devices are what the machine has.
absl::StatusOr<DeviceSpec> ParseDeviceSpec(std::string_view text);

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_DEVICE_SPEC_H_
