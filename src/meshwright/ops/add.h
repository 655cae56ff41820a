#ifndef MESHWRIGHT_OPS_ADD_H_
#define MESHWRIGHT_OPS_ADD_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Elementwise sum.
//
// Shapes (global): a, b the same float or integer type; returns it.
// Sharding: elementwise; stays unreduced over an axis when both operands are unreduced
// over it.
// Errors: GraphError(kInvalidArgument) when the types differ or a is pred.
Value Add(Value a, Value b);

// The same with a constant of a's type.
Value Add(Value a, double b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ADD_H_
