#ifndef MESHWRIGHT_OPS_LOG_H_
#define MESHWRIGHT_OPS_LOG_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Natural logarithm.
//
//   y = ln x
//
// Shapes (global): x any shape, float; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value Log(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_LOG_H_
