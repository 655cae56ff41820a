#include "meshwright/runtime/topology.h"

#include <fmt/format.h>

#include <numeric>

#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/pjrt_api.h"

namespace mw::runtime {

absl::StatusOr<Topology> Topology::Create(const Plugin* plugin, std::string_view name,
                                          const NamedValues& options) {
  const PJRT_Api* api = plugin->api();
  const std::vector<PJRT_NamedValue> values = ToPjrtNamedValues(options);
  MW_PJRT_ARGS(PJRT_TopologyDescription_Create_Args, create);
  create.topology_name = name.data();
  create.topology_name_size = name.size();
  create.create_options = values.data();
  create.num_options = values.size();
  MW_RETURN_IF_ERROR(Annotate(MW_PJRT_CALL(api, PJRT_TopologyDescription_Create, create),
                              fmt::format("topology '{}' of plugin '{}'", name, plugin->name())));

  Topology topology;
  topology.plugin_ = plugin;
  topology.name_ = std::string(name);
  topology.topology_.reset(create.topology, [api](PJRT_TopologyDescription* t) {
    MW_PJRT_ARGS(PJRT_TopologyDescription_Destroy_Args, args);
    args.topology = t;
    MW_PJRT_CALL(api, PJRT_TopologyDescription_Destroy, args).IgnoreError();
  });

  MW_PJRT_ARGS(PJRT_TopologyDescription_PlatformName_Args, platform);
  platform.topology = create.topology;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_TopologyDescription_PlatformName, platform));
  topology.platform_name_.assign(platform.platform_name, platform.platform_name_size);

  MW_PJRT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions_Args, devices);
  devices.topology = create.topology;
  MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_TopologyDescription_GetDeviceDescriptions, devices));
  topology.num_devices_ = static_cast<int>(devices.num_descriptions);
  if (devices.num_descriptions > 0) {
    MW_PJRT_ARGS(PJRT_DeviceDescription_Kind_Args, kind);
    kind.device_description = devices.descriptions[0];
    MW_RETURN_IF_ERROR(MW_PJRT_CALL(api, PJRT_DeviceDescription_Kind, kind));
    topology.device_kind_.assign(kind.device_kind, kind.device_kind_size);
  }
  return topology;
}

absl::StatusOr<Executable> Topology::Compile(std::string_view stablehlo_text,
                                             const CompileOptions& options) const {
  MW_RETURN_IF_ERROR(options.Validate());
  // The limit of the counts in Validate keeps this product in range.
  const int64_t num_used = options.num_replicas * options.num_partitions;
  if (num_used > num_devices_) {
    return absl::InvalidArgumentError(fmt::format(
        "compile for {} replicas of {} partitions on topology '{}', which has {} devices",
        options.num_replicas, options.num_partitions, name_, num_devices_));
  }
  CompileOptions assigned = options;
  if (assigned.device_ids.empty()) {
    assigned.device_ids.resize(num_used);
    std::iota(assigned.device_ids.begin(), assigned.device_ids.end(), 0);
  }
  MW_ASSIGN_OR_RETURN(const std::string option_bytes, assigned.Serialize());
  const PJRT_Program program = StableHloProgram(stablehlo_text);
  MW_PJRT_ARGS(PJRT_Compile_Args, args);
  args.topology = topology_.get();
  args.program = &program;
  args.compile_options = option_bytes.data();
  args.compile_options_size = option_bytes.size();
  MW_RETURN_IF_ERROR(CompilationError(MW_PJRT_CALL(plugin_->api(), PJRT_Compile, args),
                                      fmt::format("compile for '{}'", name_)));
  return Executable(plugin_, args.executable, topology_);
}

}  // namespace mw::runtime
