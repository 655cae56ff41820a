#ifndef MESHWRIGHT_OPS_FLOOR_H_
#define MESHWRIGHT_OPS_FLOOR_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Largest whole number that is not above x.
//
//   y = floor(x)
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Gradient: none; the cotangent stops here.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Floor(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_FLOOR_H_
