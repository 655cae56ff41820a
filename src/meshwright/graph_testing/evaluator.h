// Evaluate: runs a graph on the host in exact arithmetic, or nearly, for tests.
#ifndef MESHWRIGHT_GRAPH_TESTING_EVALUATOR_H_
#define MESHWRIGHT_GRAPH_TESTING_EVALUATOR_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/core/mesh.h"
#include "meshwright/graph/graph.h"

namespace mw {

// The elements of a tensor in row-major order; what type they have says the graph.
struct ExactTensor {
  std::vector<double> floats;     // of every float type, never rounded to it
  std::vector<int64_t> integers;  // in the range of their type (u64 by its bits), pred 0 or 1

  friend bool operator==(const ExactTensor&, const ExactTensor&) = default;
};

// What each device holds of one value. Devices with the same operands share the result.
using DeviceTensors = std::vector<std::shared_ptr<const ExactTensor>>;

// Runs `graph`, one device's program, on `num_devices` devices in lockstep, so that each
// collective sees the operands of its whole group. `inputs` has an entry per parameter;
// so has the result per output.
//
// Nothing is compiled, and two programs that mean the same differ by some 1e-15 where a
// device's float32 gives 1e-6: a test can tell a wrong reduction from another order of
// sums. Floats are float64 throughout: a conversion between float types changes nothing,
// so what rounds on purpose is not seen here. Integers wrap at their width, predicates
// and random bits are exact. The order of sums is row-major, that of a collective the
// group's.
//
// Errors: InvalidArgument naming a parameter whose devices or elements do not fit, and
// the op (scope included) that has no evaluation (custom calls) or whose collective's
// groups are not those of `num_devices`.
absl::StatusOr<std::vector<DeviceTensors>> Evaluate(const graph::Graph& graph,
                                                    const std::vector<DeviceTensors>& inputs,
                                                    int64_t num_devices);

// On one device; the results are rounded to their dtypes at the end. As RunGraph.
absl::StatusOr<std::vector<HostTensor>> EvaluateGraph(const graph::Graph& graph,
                                                      const std::vector<HostTensor>& inputs);

// Whether Evaluate can run the op of that name.
bool HasEvaluation(std::string_view op);

ExactTensor ToExact(const HostTensor& tensor);
// Rounds floats to the dtype of `type`.
HostTensor ToHost(const ExactTensor& tensor, const TensorType& type);

// What the devices of `mesh` hold of `whole`, a tensor of `type`; see ShardOf.
DeviceTensors ShardsOf(const HostTensor& whole, const TensorType& type, const Mesh& mesh);
// The whole tensor, see FromShards; floats are f64 whatever `type` says.
HostTensor WholeOf(const DeviceTensors& parts, const TensorType& type, const Mesh& mesh);
// The devices that hold the same part of a tensor of `type` and not the same elements:
// the first such pair in words, or "".
std::string ReplicaDifference(const DeviceTensors& parts, const TensorType& type, const Mesh& mesh);

}  // namespace mw

#endif  // MESHWRIGHT_GRAPH_TESTING_EVALUATOR_H_
