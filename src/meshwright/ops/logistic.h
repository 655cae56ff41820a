#ifndef MESHWRIGHT_OPS_LOGISTIC_H_
#define MESHWRIGHT_OPS_LOGISTIC_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Logistic sigmoid.
//
//   y = 1 / (1 + e^-x)
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Logistic(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_LOGISTIC_H_
