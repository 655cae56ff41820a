#ifndef MESHWRIGHT_OPS_SHIFT_LEFT_H_
#define MESHWRIGHT_OPS_SHIFT_LEFT_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Shifts the bits of a to the left by b; 0 once b reaches the width.
//
//   y = a * 2^b
//
// Shapes (global): a, b the same integer type; returns it.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when the types differ or a is not an integer.
Value ShiftLeft(Value a, Value b);

// The same with a constant of a's type.
Value ShiftLeft(Value a, double b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SHIFT_LEFT_H_
