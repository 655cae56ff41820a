#ifndef MESHWRIGHT_OPS_CONVERT_H_
#define MESHWRIGHT_OPS_CONVERT_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Changes the element type. Returns x itself when it already has `dtype`.
//
// Shapes (global): x any type; returns dtype[x.dims].
// Sharding: elementwise; widening keeps an unreduced operand unreduced, narrowing
// asks for the reduced value.
// Precision: float to a narrower float rounds to nearest even; float to integer
// truncates; pred becomes 0 or 1.
Value Convert(Value x, DType dtype);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_CONVERT_H_
