#ifndef MESHWRIGHT_OPS_RSQRT_H_
#define MESHWRIGHT_OPS_RSQRT_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Reciprocal square root.
//
//   y = x^(-1/2)
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Rsqrt(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_RSQRT_H_
