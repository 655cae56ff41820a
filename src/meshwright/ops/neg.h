#ifndef MESHWRIGHT_OPS_NEG_H_
#define MESHWRIGHT_OPS_NEG_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Negation.
//
//   y = -x
//
// Shapes (global): x any shape, float or integer; returns the same type.
// Sharding: elementwise; linear: an unreduced operand stays so.
// Errors: GraphError(kInvalidArgument) when x is pred.
Value Neg(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_NEG_H_
