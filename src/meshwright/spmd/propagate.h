// Propagate: gives every value of a global program its place on the mesh.
#ifndef MESHWRIGHT_SPMD_PROPAGATE_H_
#define MESHWRIGHT_SPMD_PROPAGATE_H_

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "meshwright/core/mesh.h"
#include "meshwright/graph/graph.h"
#include "meshwright/spmd/rules.h"

namespace mw::spmd {

struct PropagateOptions {
  Mesh mesh;
  LogicalRules rules;  // what Constrain's names mean
  // One per parameter of the graph, and one per output.
  std::vector<PartitionSpec> inputs;
  std::vector<PartitionSpec> outputs;
  // Which parameters are weights: activations win over them (factors.h).
  std::vector<bool> weights;
  // Keep a dim of an activation whole, and say so in `notes`, where the rules' axes
  // do not divide it; otherwise that is an error. Batch and length always are.
  bool replicate_indivisible = false;
  std::set<std::string>* notes = nullptr;  // may be null
};

// A copy of `graph` in which every type carries its spec, every node has its
// operands as its sharding rule needs them, and each redistribution is a reshard
// node; remat regions are inlined.
//
// A single walk from the inputs to the outputs decides:
//  - a node's result takes its spec from its operands (PlaceNode);
//  - Constrain and Reshard pin it;
//  - constants, iota and what is computed from such alone is made anew for each
//    consumer in the spec that it needs, and a broadcast is made after its operand
//    was redistributed;
//  - a scan's carry keeps the spec of its first value, or, where that is zeros, takes
//    the one that the body gives it; its stacked results take the spec that the
//    program's outputs want of them, inside the loop;
//  - what a loop uses from outside is redistributed before the loop;
//  - a redistribution is shared by the users in one region, but never by the forward
//    and the backward pass.
//
// Errors: GraphError(kInvalidArgument) when a dim cannot be split as asked, naming
// the value, the dim, the sizes and what would work.
std::unique_ptr<graph::Graph> Propagate(const graph::Graph& graph, const PropagateOptions& options);

// Checks that each node's specs follow from its rule. Errors: GraphError(kInternal).
void VerifySpecs(const graph::Graph& graph, const Mesh& mesh);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_PROPAGATE_H_
