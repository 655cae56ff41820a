// What a program that XLA partitions says of shardings, in Shardy's words.
#ifndef MESHWRIGHT_COMPILE_SHARDY_H_
#define MESHWRIGHT_COMPILE_SHARDY_H_

#include <functional>
#include <string>
#include <vector>

#include "meshwright/core/mesh.h"
#include "meshwright/graph/graph.h"
#include "meshwright/spmd/propagate.h"

namespace mw::compile {

struct ShardyAnnotations {
  Mesh mesh;
  // One per parameter of the graph, and one per output.
  std::vector<PartitionSpec> inputs;
  std::vector<PartitionSpec> outputs;
  // The spec that a constrain or reshard node, also one in a region, pins.
  std::function<PartitionSpec(const graph::Node&)> pinned;
};

// The annotations of `graph` that say what `options` say to the partitioner.
//
// Errors: GraphError(kInvalidArgument) when a dim cannot be split as asked, here or in
// `pinned`; GraphError(kUnimplemented) for unreduced axes, which Shardy's annotations
// cannot ask for.
// REQUIRES: `options` outlives the result.
ShardyAnnotations Annotate(const graph::Graph& graph, const spmd::PropagateOptions& options);

// `sdy.mesh @mesh = <["data"=2, "tensor"=4]>`. Shardy numbers devices as Mesh does.
std::string MeshText(const Mesh& mesh);

// `<@mesh, [{"data"}, {}]>` for a tensor of `rank` dims: closed, so that a dim without
// axes stays whole.
std::string ShardingText(const PartitionSpec& spec, int rank);

}  // namespace mw::compile

#endif  // MESHWRIGHT_COMPILE_SHARDY_H_
