#ifndef MESHWRIGHT_OPS_ABS_H_
#define MESHWRIGHT_OPS_ABS_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Absolute value.
//
//   y = |x|
//
// Shapes (global): x any shape, float or signed integer; returns the same type.
// Sharding: elementwise.
// Gradient: 0 at x = 0.
// Errors: GraphError(kInvalidArgument) when x is unsigned or pred.
Value Abs(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ABS_H_
