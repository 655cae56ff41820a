#ifndef MESHWRIGHT_OPS_SORT_H_
#define MESHWRIGHT_OPS_SORT_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Sorts along a dimension by the first operand; the others move with it. Equal
// keys keep their order, also when descending.
//
// Floats are in the total order of IEEE 754: -0 before 0, NaN after infinity.
// The gradient of every float operand goes back through the permutation.
//
// Shapes (global): operands of one shape, any types but a pred key; dim counts
// from the end when negative; returns their types.
// Sharding: dim must be whole; the others pass through.
// Cost: n log n comparisons; the gradient sorts twice more.
// Errors: GraphError(kInvalidArgument) when the shapes differ, dim is out of range
// or the key is pred.
std::vector<Value> Sort(const std::vector<Value>& operands, int64_t dim, bool descending = false);

// The order that a stable sort of `keys` gives: s32[keys.dims], so that
// keys[…, order[…, i, …], …] is sorted along `dim`.
Value ArgSort(Value keys, int64_t dim, bool descending = false);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SORT_H_
