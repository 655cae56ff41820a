// From the specs that an op's operands have to those that it needs and gives.
#ifndef MESHWRIGHT_SPMD_FACTORS_H_
#define MESHWRIGHT_SPMD_FACTORS_H_

#include <string>
#include <vector>

#include "meshwright/core/mesh.h"
#include "meshwright/ops/op_def.h"

namespace mw::spmd {

// What is known of an operand before the node is placed.
struct OperandState {
  PartitionSpec spec;
  // It can be made with any spec at no cost, so it has no say.
  bool flexible = false;
  // All elements are zero: it counts as unreduced over any axis.
  bool zero = false;
  // It is a parameter of the model or made of such alone: activations win over it,
  // which is what gathers the weights of FSDP.
  bool weight = false;
};

struct Placement {
  std::vector<PartitionSpec> operands;  // what the node needs
  std::vector<PartitionSpec> results;
  // Axes over which a reduction other than a sum must be finished at once.
  std::vector<std::string> reduce_now;
};

// Settles each factor of the node's rule.
//
// Operands are asked in the order: activations before weights, more bytes before
// fewer, earlier before later. A factor takes the axes of the first operand that
// shards it, as far as they are free and divide it; a later operand may lengthen the
// list. Everybody is redistributed to what was settled. Axes of factors that no
// result has go to `unreduced`; partial sums pass through the operands that the rule
// calls linear.
//
// REQUIRES: a rule of kind factors or elementwise, or a reshape.
Placement PlaceNode(const ops::Node& node, const std::vector<OperandState>& operands,
                    const Mesh& mesh);

// Errors: GraphError(kInternal) when the specs of `node` (all of its operands' and
// results' types) do not follow from its rule: what PlaceNode says of operands that
// already are as needed.
void VerifyPlacement(const ops::Node& node, const Mesh& mesh);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_FACTORS_H_
