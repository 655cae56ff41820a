#ifndef MESHWRIGHT_OPS_SQRT_H_
#define MESHWRIGHT_OPS_SQRT_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Square root.
//
//   y = x^(1/2)
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Sqrt(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SQRT_H_
