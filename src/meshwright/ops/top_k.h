#ifndef MESHWRIGHT_OPS_TOP_K_H_
#define MESHWRIGHT_OPS_TOP_K_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

struct TopKResult {
  Value values;
  Value indices;
};

// The `k` largest elements of the last dimension, largest first, and where they
// are. Of equal elements the one with the lower index comes first.
//
// Shapes (global): x [i…, V] float or s32; 1 <= k <= V; returns values x's
// dtype[i…, k] and indices s32[i…, k].
// Sharding: the last dim must be whole; the others pass through.
// Cost: the gradient of the values reads [i…, k, V] (fused, not stored).
// Errors: GraphError(kInvalidArgument) when k does not fit x or its dtype is
// another one.
// Source: CHLO dialect, top_k.
TopKResult TopK(Value x, int64_t k);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_TOP_K_H_
