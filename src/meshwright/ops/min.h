#ifndef MESHWRIGHT_OPS_MIN_H_
#define MESHWRIGHT_OPS_MIN_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Elementwise minimum; NaN where either operand is NaN.
//
// Shapes (global): a, b the same float or integer type; returns it.
// Sharding: elementwise.
// Gradient: half to each operand where they are equal.
// Errors: GraphError(kInvalidArgument) when the types differ or a is pred.
Value Minimum(Value a, Value b);

// The same with a constant of a's type.
Value Minimum(Value a, double b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_MIN_H_
