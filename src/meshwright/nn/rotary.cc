#include "meshwright/nn/rotary.h"

#include <fmt/format.h>

#include "meshwright/core/graph_error.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cos.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/sin.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/sub.h"

namespace mw::nn {

using graph::Value;

RotaryTables MakeRotaryTables(Value positions_BT, const RopeConfig& config, int64_t head_dim) {
  if (const absl::Status status = config.Validate(head_dim); !status.ok()) {
    throw GraphError(status.code(), "rotary", std::string(status.message()),
                     positions_BT.graph().scope());
  }
  const std::vector<float> frequencies = RopeInverseFrequencies(config, head_dim);
  const Dims dims = {positions_BT.dim(0), positions_BT.dim(1), head_dim / 2};
  const Value frequency =
      ops::Constant(positions_BT.graph(), DType::kF32, {head_dim / 2},
                    std::vector<double>(frequencies.begin(), frequencies.end()));
  const Value angle =
      ops::Mul(ops::BroadcastInDim(ops::Convert(positions_BT, DType::kF32), dims, {0, 1}),
               ops::BroadcastTo(frequency, dims));
  return {ops::Cos(angle), ops::Sin(angle)};
}

Value ApplyRotary(Value x_BTNH, const RotaryTables& tables) {
  const Dims& table_dims = tables.cos_BTh.dims();
  if (x_BTNH.rank() != 4 || x_BTNH.dim(3) % 2 != 0 ||
      table_dims != Dims{x_BTNH.dim(0), x_BTNH.dim(1), x_BTNH.dim(3) / 2}) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "rotary",
                     fmt::format("tables {} do not fit {}; they must be [B, T, H/2]",
                                 tables.cos_BTh.type().ToString(), x_BTNH.type().ToString()),
                     x_BTNH.graph().scope());
  }
  const int64_t half = x_BTNH.dim(3) / 2;
  const Value x = ops::Convert(x_BTNH, DType::kF32);
  const Value first = ops::SliceInDim(x, 3, 0, half);
  const Value second = ops::SliceInDim(x, 3, half, 2 * half);
  const Value cos = ops::BroadcastInDim(tables.cos_BTh, first.dims(), {0, 1, 3});
  const Value sin = ops::BroadcastInDim(tables.sin_BTh, first.dims(), {0, 1, 3});
  const Value rotated = ops::Concatenate({ops::Sub(ops::Mul(first, cos), ops::Mul(second, sin)),
                                          ops::Add(ops::Mul(second, cos), ops::Mul(first, sin))},
                                         3);
  return ops::Convert(rotated, x_BTNH.dtype());
}

}  // namespace mw::nn
