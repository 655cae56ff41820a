#ifndef MESHWRIGHT_OPS_REVERSE_H_
#define MESHWRIGHT_OPS_REVERSE_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Reverses the order of the elements along dimensions.
//
//   y[…, i, …] = x[…, n - 1 - i, …] for each of `dims`
//
// Shapes (global): x any type; `dims` distinct; returns the same type.
// Sharding: the reversed dims must be whole, the others pass through; stays
// unreduced.
// Errors: GraphError(kInvalidArgument) when a dim is out of range or repeated.
Value Reverse(Value x, const std::vector<int64_t>& dims);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_REVERSE_H_
