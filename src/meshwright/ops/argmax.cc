#include "meshwright/ops/argmax.h"

#include <fmt/format.h>

#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/or.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/select.h"

namespace mw::ops {

Value ArgMax(Value x, int64_t dim) {
  dim = FromFront(dim, x.rank());
  if (dim < 0 || dim >= x.rank() || x.dims()[dim] < 1) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "argmax",
                     fmt::format("dim {} of {} is out of range or empty", dim, x.type().ToString()),
                     x.graph().scope());
  }
  std::vector<int64_t> kept = Sequence(x.rank());
  kept.erase(kept.begin() + dim);
  const Value max = BroadcastInDim(ReduceMax(x, {dim}), x.dims(), kept);
  Value attains = Equal(x, max);
  // Equals nothing, but is what the maximum is when present.
  if (IsFloat(x.dtype())) attains = Or(attains, NotEqual(x, x));
  const Value index = Iota(x.graph(), DType::kS32, x.dims(), static_cast<int>(dim));
  const double last = static_cast<double>(x.dims()[dim] - 1);
  return ReduceMin(Select(attains, index, FullLike(index, last)), {dim});
}

}  // namespace mw::ops
