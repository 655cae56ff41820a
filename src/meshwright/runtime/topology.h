// Topology: devices that need not exist, for ahead-of-time compilation.
#ifndef MESHWRIGHT_RUNTIME_TOPOLOGY_H_
#define MESHWRIGHT_RUNTIME_TOPOLOGY_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshwright/runtime/compile_options.h"
#include "meshwright/runtime/executable.h"
#include "meshwright/runtime/named_value.h"
#include "meshwright/runtime/plugin.h"

struct PJRT_TopologyDescription;

namespace mw::runtime {

// Movable. Thread-safe.
class Topology {
 public:
  // Describes devices by name: libtpu takes "tpu7x:2x2x1" or "v5p:4x4x8" (chips);
  // the CUDA plugin takes its device description as the option "target_config".
  // Errors: the plugin's, e.g. InvalidArgument for an unknown name.
  static absl::StatusOr<Topology> Create(const Plugin* plugin, std::string_view name,
                                         const NamedValues& options = {});

  const Plugin& plugin() const { return *plugin_; }
  const std::string& name() const { return name_; }
  const std::string& platform_name() const { return platform_name_; }
  // Devices, not chips: a tpu7x chip is two.
  int num_devices() const { return num_devices_; }
  // "TPU7x", …; of the first device.
  const std::string& device_kind() const { return device_kind_; }

  // Compiles StableHLO text for these devices. Empty options.device_ids means
  // devices 0, 1, ….
  // Errors: InvalidArgument when replicas x partitions exceeds num_devices().
  absl::StatusOr<Executable> Compile(std::string_view stablehlo_text,
                                     const CompileOptions& options = {}) const;

 private:
  Topology() = default;

  const Plugin* plugin_ = nullptr;
  std::shared_ptr<PJRT_TopologyDescription> topology_;
  std::string name_;
  std::string platform_name_;
  std::string device_kind_;
  int num_devices_ = 0;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_TOPOLOGY_H_
