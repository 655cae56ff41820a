#ifndef MESHWRIGHT_OPS_SHIFT_RIGHT_LOGICAL_H_
#define MESHWRIGHT_OPS_SHIFT_RIGHT_LOGICAL_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Shifts the bits of a to the right by b and fills with zeros.
//
// Shapes (global): a, b the same integer type; returns it.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when the types differ or a is not an integer.
Value ShiftRightLogical(Value a, Value b);

// The same with a constant of a's type.
Value ShiftRightLogical(Value a, double b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SHIFT_RIGHT_LOGICAL_H_
