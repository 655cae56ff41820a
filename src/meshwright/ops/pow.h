#ifndef MESHWRIGHT_OPS_POW_H_
#define MESHWRIGHT_OPS_POW_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Power.
//
//   y = a^b
//
// Shapes (global): a, b the same float or integer type; returns it.
// Sharding: elementwise.
// Precision: a negative base takes whole exponents only, else NaN.
// Gradient: 0 by a where b = 0, and 0 by b where a = 0.
// Errors: GraphError(kInvalidArgument) when the types differ or a is pred.
Value Pow(Value a, Value b);

// The same with a constant of a's type.
Value Pow(Value a, double b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_POW_H_
