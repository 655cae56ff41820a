// Graph → StableHLO text.
#ifndef MESHWRIGHT_COMPILE_LOWER_H_
#define MESHWRIGHT_COMPILE_LOWER_H_

#include <string>
#include <vector>

#include "meshwright/compile/shardy.h"
#include "meshwright/graph/graph.h"
#include "meshwright/ops/op_def.h"

namespace mw::compile {

// Which parameters and outputs; lists that end early: none of the others.
struct NativeArrays {
  std::vector<bool> inputs;
  std::vector<bool> outputs;
};

// The StableHLO module of `graph` with one function @main: its parameters in
// order, donated ones marked with tf.aliasing_output. Nodes that no output needs
// are left out, and equal nodes are written once per region. Equal graphs give
// equal text.
//
// With `num_partitions` > 1 it is the program of each of that many devices. With `locations`
// each op says where it stands, "layers/mlp/dot_general": compilers repeat it in what they dump.
// What `native` names has its NativeLayout.
// REQUIRES: every sharding is replicated (the partitioner runs before).
// Errors: GraphError of an op that has a kernel for `target` but not for its sizes.
std::string LowerToStableHlo(const graph::Graph& graph, const std::string& module_name,
                             int64_t num_partitions = 1, const ops::Target& target = {},
                             bool locations = false, const NativeArrays& native = {});

// The global program for XLA to partition over annotations.mesh: as above, with the
// mesh, the shardings of arguments and results, and a constraint for each constrain and
// reshard node.
std::string LowerToShardy(const graph::Graph& graph, const std::string& module_name,
                          const ShardyAnnotations& annotations, bool locations = false);

}  // namespace mw::compile

#endif  // MESHWRIGHT_COMPILE_LOWER_H_
