// RunPartitioned: partitions a graph and runs it on virtual devices or on the evaluator, for
// tests.
#ifndef MESHWRIGHT_GRAPH_TESTING_RUN_PARTITIONED_H_
#define MESHWRIGHT_GRAPH_TESTING_RUN_PARTITIONED_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/runtime/client.h"
#include "meshwright/spmd/census.h"
#include "meshwright/spmd/propagate.h"

namespace mw {

// The process's client of eight virtual CPU devices; created on the first call.
absl::StatusOr<std::shared_ptr<runtime::Client>> TestMeshClient();

struct PartitionedRun {
  // The whole outputs, parts over unreduced axes added up.
  std::vector<HostTensor> outputs;
  spmd::Census census;
};

// Runs `graph` on the devices of options.mesh, eight CPU devices at most, with one
// whole input per parameter.
// Errors: the partitioner's, the compiler's and the device's.
absl::StatusOr<PartitionedRun> RunPartitioned(const graph::Graph& graph,
                                              const std::vector<HostTensor>& inputs,
                                              const spmd::PropagateOptions& options);

// The same on the evaluator, see evaluator.h: floats of the outputs are f64, whatever their
// dtype is.
// Errors: the partitioner's and the evaluator's.
absl::StatusOr<PartitionedRun> EvaluatePartitioned(const graph::Graph& graph,
                                                   const std::vector<HostTensor>& inputs,
                                                   const spmd::PropagateOptions& options);

}  // namespace mw

#endif  // MESHWRIGHT_GRAPH_TESTING_RUN_PARTITIONED_H_
