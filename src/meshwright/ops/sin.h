#ifndef MESHWRIGHT_OPS_SIN_H_
#define MESHWRIGHT_OPS_SIN_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Sine of an angle in radians.
//
//   y = sin x
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Sin(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SIN_H_
