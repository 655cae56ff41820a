#ifndef MESHWRIGHT_OPS_RESHARD_H_
#define MESHWRIGHT_OPS_RESHARD_H_

#include "meshwright/core/partition_spec.h"
#include "meshwright/ops/op_def.h"

namespace mw::ops {

// The same tensor laid out on the mesh as `spec` says, unreduced axes included.
//
// The identity on one device. Under a mesh the partitioner makes collectives of it
// (spmd/redistribute.h); Constrain says the same with logical axes, by the rules.
//
// Shapes (global): x any type; returns x's type. The cotangent is laid out in the
// same dims, and reduced.
// Errors: GraphError(kInvalidArgument) for a spec of more dims than x has.
Value Reshard(Value x, const PartitionSpec& spec);

// The spec that a reshard node asks for.
PartitionSpec ReshardSpec(const Node& node);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_RESHARD_H_
