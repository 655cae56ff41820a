#ifndef MESHWRIGHT_OPS_MUL_H_
#define MESHWRIGHT_OPS_MUL_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Elementwise product.
//
// Shapes (global): a, b the same float or integer type; returns it.
// Sharding: elementwise; multilinear: stays unreduced over an axis when exactly
// one operand is unreduced over it.
// Errors: GraphError(kInvalidArgument) when the types differ.
Value Mul(Value a, Value b);

// Product with a constant of a's type.
Value Mul(Value a, double b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_MUL_H_
