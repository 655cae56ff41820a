#ifndef MESHWRIGHT_OPS_SUB_H_
#define MESHWRIGHT_OPS_SUB_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Elementwise difference.
//
//   y = a - b
//
// Shapes (global): a, b the same float or integer type; returns it.
// Sharding: elementwise; stays unreduced over an axis when both operands are unreduced
// over it.
// Errors: GraphError(kInvalidArgument) when the types differ or a is pred.
Value Sub(Value a, Value b);

// The same with a constant of a's type.
Value Sub(Value a, double b);

// The same with a constant of b's type.
Value Sub(double a, Value b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SUB_H_
