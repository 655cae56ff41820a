#ifndef MESHWRIGHT_OPS_NOT_H_
#define MESHWRIGHT_OPS_NOT_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Logical not of pred, bitwise complement of integers.
//
//   y = ~x
//
// Shapes (global): x any shape, pred or integer; returns the same type.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is a float.
Value Not(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_NOT_H_
