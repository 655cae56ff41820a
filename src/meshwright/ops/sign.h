#ifndef MESHWRIGHT_OPS_SIGN_H_
#define MESHWRIGHT_OPS_SIGN_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Sign: -1, 0 or 1.
//
//   y = x / |x|, and x itself for zeros and NaN
//
// Shapes (global): x any shape, float or signed integer; returns the same type.
// Sharding: elementwise.
// Gradient: none; the cotangent stops here.
// Errors: GraphError(kInvalidArgument) when x is unsigned or pred.
Value Sign(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SIGN_H_
