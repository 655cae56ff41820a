// How programs of a mesh are compiled.
#ifndef MESHWRIGHT_RUNTIME_PARTITIONED_OPTIONS_H_
#define MESHWRIGHT_RUNTIME_PARTITIONED_OPTIONS_H_

#include <map>
#include <string>

#include "meshwright/core/mesh.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/compile_options.h"

namespace mw::runtime {

// One partition on each of the client's first mesh.num_devices() devices, with the compiler's
// `flags`.
// REQUIRES: the client has so many.
CompileOptions PartitionedOptions(const Mesh& mesh, const Client& client,
                                  const std::map<std::string, std::string>& flags = {});

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_PARTITIONED_OPTIONS_H_
