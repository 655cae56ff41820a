#ifndef MESHWRIGHT_OPS_PAD_H_
#define MESHWRIGHT_OPS_PAD_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Puts a value around and between the elements.
//
//   y[low + i * (interior + 1)] = x[i], and `value` elsewhere
//
// Shapes (global): x any type; value a scalar of x's dtype; low, high and interior
// hold one entry per dim. Negative low and high cut elements off; interior >= 0.
// y.dims[d] = low + high + n + max(n - 1, 0) * interior for n = x.dims[d].
// Returns x itself when nothing is added or cut.
// Sharding: dims that keep their elements as they are pass through, the others
// must be whole; x may stay unreduced when `value` is 0.
// Errors: GraphError(kInvalidArgument) when a list does not fit x or a size would
// be negative.
Value Pad(Value x, Value value, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
          const std::vector<int64_t>& interior);

// Pad without interior and with a constant value.
Value Pad(Value x, double value, const std::vector<int64_t>& low, const std::vector<int64_t>& high);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_PAD_H_
