#ifndef MESHWRIGHT_OPS_IOTA_H_
#define MESHWRIGHT_OPS_IOTA_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Numbers 0, 1, 2, … along dimension `dim`, repeated along the others.
//
// Shapes (global): returns dtype[dims], an integer or float type.
// Sharding: creation; every consumer gets its own.
// Precision: whole numbers that dtype does not hold are rounded (bf16 above 256).
// Errors: GraphError(kInvalidArgument) when dtype is pred, a size is negative or
// `dim` is not a dim of `dims`.
Value Iota(Graph& graph, DType dtype, Dims dims, int64_t dim);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_IOTA_H_
