#ifndef MESHWRIGHT_OPS_LOG1P_H_
#define MESHWRIGHT_OPS_LOG1P_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Natural logarithm of one plus x, exact for small x.
//
//   y = ln(1 + x)
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Log1p(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_LOG1P_H_
