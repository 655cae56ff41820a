#ifndef MESHWRIGHT_OPS_EXPM1_H_
#define MESHWRIGHT_OPS_EXPM1_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Exponential minus one, exact for small x.
//
//   y = e^x - 1
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Expm1(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_EXPM1_H_
