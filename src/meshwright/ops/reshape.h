#ifndef MESHWRIGHT_OPS_RESHAPE_H_
#define MESHWRIGHT_OPS_RESHAPE_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Gives the elements, in row-major order, other dimensions.
//
// Shapes (global): x any type; product(dims) = product(x.dims). One entry of `dims`
// may be -1: what is left. Returns x.dtype[dims], and x itself when nothing changes.
// Sharding: factors where only dims of size 1 come and go; else by ReshapeGroups.
// Stays unreduced.
// Errors: GraphError(kInvalidArgument) when the counts of elements differ.
Value Reshape(Value x, const Dims& dims);

// A run of dims of `from` and the run of dims of `to` that holds the same elements.
struct ReshapeGroup {
  std::vector<int64_t> from;
  std::vector<int64_t> to;
};

// Splits a reshape into the smallest groups, in order; dims of size 1 are in
// none. One-to-one groups are dims that pass through. In the others the sharding
// of the group follows its outermost dims: [B*T] -> [B, T] gives its axes to B.
// REQUIRES: equal products. When they are 0, one group holds every dim.
std::vector<ReshapeGroup> ReshapeGroups(const Dims& from, const Dims& to);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_RESHAPE_H_
