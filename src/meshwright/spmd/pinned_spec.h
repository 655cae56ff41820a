// PinnedSpec: what the nodes that say where a value lies ask for.
#ifndef MESHWRIGHT_SPMD_PINNED_SPEC_H_
#define MESHWRIGHT_SPMD_PINNED_SPEC_H_

#include <string>
#include <vector>

#include "meshwright/graph/graph.h"
#include "meshwright/spmd/propagate.h"

namespace mw::spmd {

// The spec that `rules` give an activation of these logical axes. Where they do not name
// activation_embed_and_logits_batch, that is activation_batch.
PartitionSpec ResolveActivation(const LogicalRules& rules, std::vector<std::string> names,
                                const Mesh& mesh);

// The spec of a constrain node, by the rules, or of a reshard node, as it is written.
//
// Errors: GraphError(kInvalidArgument) when its axes do not divide a dim, which
// options.replicate_indivisible keeps whole instead, batch and length excepted.
// REQUIRES: `node` is one of the two.
PartitionSpec PinnedSpec(const graph::Node& node, const PropagateOptions& options);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_PINNED_SPEC_H_
