#ifndef MESHWRIGHT_OPS_REM_H_
#define MESHWRIGHT_OPS_REM_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Remainder of the division that rounds toward zero; it has the sign of a.
//
//   y = a - b * trunc(a / b)
//
// Shapes (global): a, b the same float or integer type; returns it.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when the types differ or a is pred.
Value Rem(Value a, Value b);

// The same with a constant of a's type.
Value Rem(Value a, double b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_REM_H_
