#ifndef MESHWRIGHT_OPS_EXP_H_
#define MESHWRIGHT_OPS_EXP_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Exponential.
//
//   y = e^x
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Exp(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_EXP_H_
