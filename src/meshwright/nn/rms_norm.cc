#include "meshwright/nn/rms_norm.h"

#include <fmt/format.h>

#include "meshwright/core/graph_error.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/rsqrt.h"

namespace mw::nn {

graph::Value RmsNorm(graph::Value x, graph::Value scale_D, double eps) {
  if (x.rank() < 1 || scale_D.dims() != Dims{x.dim(-1)}) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "rms_norm",
                     fmt::format("scale {} does not fit {}; it must have the size of the last dim",
                                 scale_D.type().ToString(), x.type().ToString()),
                     x.graph().scope());
  }
  const graph::Value x_f32 = ops::Convert(x, DType::kF32);
  const graph::Value sum = ops::ReduceSum(ops::Square(x_f32), {-1}, /*keep_dims=*/true);
  const double width = static_cast<double>(x.dim(-1));
  const graph::Value inverse = ops::Rsqrt(ops::Add(ops::Mul(sum, 1.0 / width), eps));
  const graph::Value normal = ops::Mul(x_f32, ops::BroadcastLike(inverse, x_f32));
  const graph::Value scale = ops::BroadcastLike(ops::Convert(scale_D, DType::kF32), x_f32);
  return ops::Convert(ops::Mul(normal, scale), x.dtype());
}

}  // namespace mw::nn
