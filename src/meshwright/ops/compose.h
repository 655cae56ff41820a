#ifndef MESHWRIGHT_OPS_COMPOSE_H_
#define MESHWRIGHT_OPS_COMPOSE_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Short names for combinations of ops; each is built from the ops it names.

// x * x.
Value Square(Value x);

// min(max(x, low), high) with constants of x's type; half the gradient passes
// where x equals a bound.
//
// Errors: GraphError(kInvalidArgument) when low > high.
Value Clamp(Value x, double low, double high);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_COMPOSE_H_
