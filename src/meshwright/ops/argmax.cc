#include "meshwright/ops/argmax.h"

#include <fmt/format.h>

#include <limits>

#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/iota.h"
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
  // XLA's CPU backend may or may not let a NaN through a maximum.
  Value key = x;
  if (IsFloat(x.dtype())) {
    key = Select(NotEqual(x, x), FullLike(x, std::numeric_limits<double>::infinity()), x);
  }
  const Value max = BroadcastInDim(ReduceMax(key, {dim}), x.dims(), kept);
  const Value index = Iota(x.graph(), DType::kS32, x.dims(), static_cast<int>(dim));
  const double last = static_cast<double>(x.dims()[dim] - 1);
  return ReduceMin(Select(Equal(key, max), index, FullLike(index, last)), {dim});
}

}  // namespace mw::ops
