#ifndef MESHWRIGHT_OPS_CONCATENATE_H_
#define MESHWRIGHT_OPS_CONCATENATE_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Joins tensors along one dimension; a negative `dim` counts from the end.
//
// Shapes (global): one or more values of one dtype whose dims differ at most in
// `dim`, where the result has the sum of their sizes. One value is returned as is.
// Sharding: `dim` must be whole, the other dims pass through; stays unreduced over
// an axis when all operands are unreduced over it.
// Errors: GraphError(kInvalidArgument) when there is no value, or dtypes or other
// dims differ.
Value Concatenate(const std::vector<Value>& values, int64_t dim);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_CONCATENATE_H_
