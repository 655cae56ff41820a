#ifndef MESHWRIGHT_OPS_COS_H_
#define MESHWRIGHT_OPS_COS_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Cosine of an angle in radians.
//
//   y = cos x
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Cos(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_COS_H_
