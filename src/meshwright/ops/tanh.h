#ifndef MESHWRIGHT_OPS_TANH_H_
#define MESHWRIGHT_OPS_TANH_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Hyperbolic tangent.
//
//   y = (e^x - e^-x) / (e^x + e^-x)
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Tanh(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_TANH_H_
