// RunGraph: compiles and runs a graph on one device, for tests.
#ifndef MESHWRIGHT_GRAPH_TESTING_RUN_GRAPH_H_
#define MESHWRIGHT_GRAPH_TESTING_RUN_GRAPH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/graph/graph.h"
#include "meshwright/runtime/client.h"

namespace mw {

struct RunOptions {
  // A name that runtime::Plugin::Load knows.
  std::string plugin = "cpu";
  // RunGraph: whether ops call the kernels for CPUs.
  bool kernels = false;
};

// The process's client of a plugin; created on the first call.
absl::StatusOr<std::shared_ptr<runtime::Client>> TestClient(const std::string& plugin);

// Runs StableHLO text with one argument per parameter; returns its outputs.
absl::StatusOr<std::vector<HostTensor>> RunText(const std::string& stablehlo,
                                                const std::vector<HostTensor>& inputs,
                                                const RunOptions& options = {});

// Lowers and runs `graph` with one input per parameter; returns its outputs.
// Errors: InvalidArgument when an input's dtype or dims are not its parameter's;
// what the compiler or the device says.
absl::StatusOr<std::vector<HostTensor>> RunGraph(const graph::Graph& graph,
                                                 const std::vector<HostTensor>& inputs,
                                                 const RunOptions& options = {});

}  // namespace mw

#endif  // MESHWRIGHT_GRAPH_TESTING_RUN_GRAPH_H_
