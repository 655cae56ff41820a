#ifndef MESHWRIGHT_OPS_CUMSUM_H_
#define MESHWRIGHT_OPS_CUMSUM_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

struct CumsumOptions {
  // Sums from the end.
  bool reverse = false;
  // Leaves the element itself out: the first sum is 0.
  bool exclusive = false;
};

// Running sum along a dimension.
//
//   y[…, i, …] = sum over j <= i of x[…, j, …]
//
// Shapes (global): x any number type; dim counts from the end when negative;
// returns x's type.
// Sharding: dim must be whole; the others pass through.
// Precision: sums in x's dtype by pairwise doubling.
// Cost: log2(x.dims[dim]) passes over x.
// Errors: GraphError(kInvalidArgument) when dim is out of range or x is pred.
Value Cumsum(Value x, int64_t dim, CumsumOptions options = {});

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_CUMSUM_H_
