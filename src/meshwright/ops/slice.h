#ifndef MESHWRIGHT_OPS_SLICE_H_
#define MESHWRIGHT_OPS_SLICE_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// A static window of a tensor.
//
//   y[i] = x[starts + i * strides]
//
// Shapes (global): x any type; 0 <= starts[d] <= limits[d] <= x.dims[d], strides[d]
// >= 1 (all 1 when empty); y.dims[d] = ceil((limits[d] - starts[d]) / strides[d]).
// Returns x itself when it takes all.
// Sharding: dims taken whole pass through, the others must be whole; stays
// unreduced.
// Errors: GraphError(kInvalidArgument) when a list does not fit x.
Value Slice(Value x, const std::vector<int64_t>& starts, const std::vector<int64_t>& limits,
            const std::vector<int64_t>& strides = {});

// Slice of dimension `dim` alone; a negative `dim` counts from the end.
Value SliceInDim(Value x, int64_t dim, int64_t start, int64_t limit, int64_t stride = 1);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SLICE_H_
