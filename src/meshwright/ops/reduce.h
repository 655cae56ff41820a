#ifndef MESHWRIGHT_OPS_REDUCE_H_
#define MESHWRIGHT_OPS_REDUCE_H_

#include <cstdint>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Reductions over dimensions.
//
//   y[kept…] = op over reduced of x[…]
//
// The gradient of a sum is broadcast; that of a maximum or minimum is split
// evenly among the elements that attain it, as in JAX; that of a product is exact
// where elements are zero.
//
// Shapes (global): x any shape; `dims` distinct, negative ones count from the
// end; an empty list returns x itself. Returns x's dtype without those dims, or
// with size 1 there when `keep_dims`. A reduction over no elements gives the
// operation's identity (0, 1, the lowest or highest value, true, false).
// Sharding: factors; a sharded reduced dim leaves a sum unreduced, the others are
// reduced across devices at once.
// Precision: in x's dtype. A bf16 sum is not accumulated in float32: convert
// first where that matters. XLA's CPU backend leaves NaN out of a maximum or
// minimum; other backends return it.
// Errors: GraphError(kInvalidArgument) when a dim is out of range or repeated, or
// the dtype does not fit (pred for ReduceAnd and ReduceOr, a number for the rest).
Value ReduceSum(Value x, const std::vector<int64_t>& dims, bool keep_dims = false);
Value ReduceMax(Value x, const std::vector<int64_t>& dims, bool keep_dims = false);
Value ReduceMin(Value x, const std::vector<int64_t>& dims, bool keep_dims = false);
Value ReduceProd(Value x, const std::vector<int64_t>& dims, bool keep_dims = false);
Value ReduceAnd(Value x, const std::vector<int64_t>& dims, bool keep_dims = false);
Value ReduceOr(Value x, const std::vector<int64_t>& dims, bool keep_dims = false);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_REDUCE_H_
