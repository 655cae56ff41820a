#ifndef MESHWRIGHT_OPS_DYNAMIC_SLICE_H_
#define MESHWRIGHT_OPS_DYNAMIC_SLICE_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// A block of `x` whose place is known when the program runs.
//
//   y[i…] = x[start_0 + i_0, start_1 + i_1, …]
//
// Shapes (global): x any type; one scalar start per dimension of x, all of one
// integer type; `sizes` between 0 and x's; returns x's dtype[sizes]. A start that
// would reach over the edge is clamped so that the block fits.
// Sharding: dims taken whole pass through; a dim that is cut must be whole.
// Errors: GraphError(kInvalidArgument) when counts, types or sizes do not fit.
// Source: StableHLO specification, dynamic_slice.
Value DynamicSlice(Value x, const std::vector<Value>& starts, Dims sizes);

// DynamicSlice along one dimension (negative counts from the end): `size`
// elements from the scalar `start`, everything along the others.
Value DynamicSliceInDim(Value x, Value start, int64_t size, int64_t dim);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_DYNAMIC_SLICE_H_
