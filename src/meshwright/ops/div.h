#ifndef MESHWRIGHT_OPS_DIV_H_
#define MESHWRIGHT_OPS_DIV_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Elementwise quotient.
//
//   y = a / b
//
// Shapes (global): a, b the same float or integer type; returns it.
// Sharding: elementwise; linear in a: a stays unreduced when b is not.
// Precision: integers divide toward zero.
// Errors: GraphError(kInvalidArgument) when the types differ or a is pred.
Value Div(Value a, Value b);

// The same with a constant of a's type.
Value Div(Value a, double b);

// The same with a constant of b's type.
Value Div(double a, Value b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_DIV_H_
