#ifndef MESHWRIGHT_OPS_TRANSPOSE_H_
#define MESHWRIGHT_OPS_TRANSPOSE_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Permutes dimensions.
//
//   y.dims[i] = x.dims[permutation[i]]
//
// Shapes (global): x any type; permutation holds 0 … rank-1 once each. Returns x
// itself for the identity.
// Sharding: factors; each dim takes its axes along.
// Errors: GraphError(kInvalidArgument) when `permutation` is not one.
Value Transpose(Value x, const std::vector<int64_t>& permutation);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_TRANSPOSE_H_
