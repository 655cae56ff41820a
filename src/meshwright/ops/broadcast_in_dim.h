#ifndef MESHWRIGHT_OPS_BROADCAST_IN_DIM_H_
#define MESHWRIGHT_OPS_BROADCAST_IN_DIM_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Repeats a tensor along new dimensions and along dimensions of size 1.
//
//   y.dims[broadcast_dimensions[i]] comes from x.dims[i]
//
// Shapes (global): x any type; `broadcast_dimensions` holds one dim of `dims` for
// each dim of x, increasing; x.dims[i] is 1 or the size there. Returns
// x.dtype[dims], and x itself when nothing changes.
// Sharding: factors; stays unreduced.
// Errors: GraphError(kInvalidArgument) when the sizes or the list do not fit.
// Source: StableHLO specification, broadcast_in_dim.
Value BroadcastInDim(Value x, const Dims& dims, const std::vector<int64_t>& broadcast_dimensions);

// BroadcastInDim with x's dims aligned to the last ones of `dims`, as in NumPy;
// a scalar fits any `dims`.
// Errors: GraphError(kInvalidArgument) when x has more dims than `dims` or a size
// is neither 1 nor the one asked for.
Value BroadcastTo(Value x, const Dims& dims);

// BroadcastTo the dims of `like`; x keeps its dtype.
Value BroadcastLike(Value x, Value like);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_BROADCAST_IN_DIM_H_
