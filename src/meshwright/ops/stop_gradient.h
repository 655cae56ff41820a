#ifndef MESHWRIGHT_OPS_STOP_GRADIENT_H_
#define MESHWRIGHT_OPS_STOP_GRADIENT_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// The identity, through which no gradient flows.
//
// Shapes (global): x any type; returns the same type.
// Sharding: elementwise.
// Cost: none; it is not in the compiled program.
Value StopGradient(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_STOP_GRADIENT_H_
