// ArgMax: where the largest element is.
#ifndef MESHWRIGHT_OPS_ARGMAX_H_
#define MESHWRIGHT_OPS_ARGMAX_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// The index of the first largest element along a dimension; a NaN counts as
// infinity. No gradient flows through it.
//
// A composition of two reductions, which vectorize and take a sharded dim, as one
// reduction of (value, index) pairs would not.
//
// Shapes (global): x any number type with at least one element along dim, which
// counts from the end when negative; returns s32 without that dim.
// Sharding: a sharded dim costs two all-reduces of the result's size.
// Errors: GraphError(kInvalidArgument) when dim is out of range or empty, or x is
// pred.
Value ArgMax(Value x, int64_t dim);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ARGMAX_H_
