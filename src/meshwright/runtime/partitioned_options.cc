#include "meshwright/runtime/partitioned_options.h"

namespace mw::runtime {

CompileOptions PartitionedOptions(const Mesh& mesh, const Client& client,
                                  const std::map<std::string, std::string>& flags) {
  CompileOptions options;
  options.num_partitions = mesh.num_devices();
  // Annotations or none: XLA's other partitioner warns at each compilation that it is to go.
  options.use_shardy = !mesh.empty();
  for (int64_t d = 0; d < mesh.num_devices(); ++d) {
    options.device_ids.push_back(client.devices()[static_cast<size_t>(d)].id());
  }
  options.SetFlags(flags);
  return options;
}

}  // namespace mw::runtime
