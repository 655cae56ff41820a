#ifndef MESHWRIGHT_OPS_DYNAMIC_UPDATE_SLICE_H_
#define MESHWRIGHT_OPS_DYNAMIC_UPDATE_SLICE_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// `x` with a block replaced whose place is known when the program runs.
//
//   y = x except y[start_0 + i_0, …] = update[i_0, …]
//
// Shapes (global): x any type; update of x's dtype and rank, no dim larger; one
// scalar start per dimension, all of one integer type; returns x's type. A start
// that would reach over the edge is clamped so that the block fits.
// Sharding: dims updated whole pass through; the others must be whole.
// Cost: in place when x has no later use.
// Errors: GraphError(kInvalidArgument) when counts, types or sizes do not fit.
// Source: StableHLO specification, dynamic_update_slice.
Value DynamicUpdateSlice(Value x, Value update, const std::vector<Value>& starts);

// DynamicUpdateSlice along one dimension (negative counts from the end) at the
// scalar `start`, at 0 along the others.
Value DynamicUpdateSliceInDim(Value x, Value update, Value start, int64_t dim);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_DYNAMIC_UPDATE_SLICE_H_
