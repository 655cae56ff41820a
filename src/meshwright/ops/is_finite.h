#ifndef MESHWRIGHT_OPS_IS_FINITE_H_
#define MESHWRIGHT_OPS_IS_FINITE_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Whether each element is neither infinite nor NaN.
//
// Shapes (global): x any shape, float; returns pred[x.dims].
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when x is not a float.
Value IsFinite(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_IS_FINITE_H_
