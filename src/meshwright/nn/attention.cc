#include "meshwright/nn/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "meshwright/core/graph_error.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/and.h"
#include "meshwright/ops/attention.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/cached_attention.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/stop_gradient.h"
#include "meshwright/ops/sub.h"
#include "meshwright/ops/transpose.h"

namespace mw::nn {

using graph::Value;

namespace {

// [B, T, K, G, H] of queries [B, T, N, H] that attend to keys [B, T, K, H].
Dims GroupedHeads(Value q_BTNH, Value k_BTKH) {
  if (q_BTNH.rank() != 4 || k_BTKH.rank() != 4 || k_BTKH.dim(2) == 0 ||
      q_BTNH.dim(2) % k_BTKH.dim(2) != 0) {
    throw GraphError(
        absl::StatusCode::kInvalidArgument, "attention",
        fmt::format("q {} and k {} do not fit; they must be [B,T,N,H] and [B,T,K,H] with N a "
                    "multiple of K",
                    q_BTNH.type().ToString(), k_BTKH.type().ToString()),
        q_BTNH.graph().scope());
  }
  return {q_BTNH.dim(0), q_BTNH.dim(1), k_BTKH.dim(2), q_BTNH.dim(2) / k_BTKH.dim(2),
          q_BTNH.dim(3)};
}

}  // namespace

Value CausalSegmentMask(Value segment_ids_BT) {
  graph::Graph& graph = segment_ids_BT.graph();
  const int64_t rows = segment_ids_BT.dim(0);
  const int64_t tokens = segment_ids_BT.dim(1);
  const Dims dims = {rows, tokens, tokens};
  const Value same = ops::Equal(ops::BroadcastInDim(segment_ids_BT, dims, {0, 1}),
                                ops::BroadcastInDim(segment_ids_BT, dims, {0, 2}));
  const Value earlier = ops::LessEqual(ops::Iota(graph, DType::kS32, dims, 2),
                                       ops::Iota(graph, DType::kS32, dims, 1));
  return ops::And(same, earlier);
}

Value Attention(Value q_BTNH, Value k_BSKH, Value v_BSKH, Value mask_BTS,
                const ComputeOptions& options) {
  const bool ranks = q_BTNH.rank() == 4 && k_BSKH.rank() == 4 && k_BSKH.dims() == v_BSKH.dims();
  if (!ranks || k_BSKH.dim(2) == 0 || q_BTNH.dim(2) % k_BSKH.dim(2) != 0 ||
      q_BTNH.dim(3) != k_BSKH.dim(3) ||
      mask_BTS.dims() != Dims{q_BTNH.dim(0), q_BTNH.dim(1), k_BSKH.dim(1)}) {
    throw GraphError(
        absl::StatusCode::kInvalidArgument, "attention",
        fmt::format("q {}, k {}, v {}, mask {} do not fit; they must be [B,T,N,H], [B,S,K,H], "
                    "[B,S,K,H], [B,T,S] with N a multiple of K",
                    q_BTNH.type().ToString(), k_BSKH.type().ToString(), v_BSKH.type().ToString(),
                    mask_BTS.type().ToString()),
        q_BTNH.graph().scope());
  }
  const int64_t rows = q_BTNH.dim(0);
  const int64_t tokens = q_BTNH.dim(1);
  const int64_t heads = q_BTNH.dim(2);
  const int64_t head_dim = q_BTNH.dim(3);
  const int64_t kv_heads = k_BSKH.dim(2);
  const int64_t groups = heads / kv_heads;

  // The score matrix comes out of the product in the order in which it is used, so
  // only the small operands are ever transposed.
  const Value q_BKGTH = ops::Transpose(
      ops::Reshape(q_BTNH, {rows, tokens, kv_heads, groups, head_dim}), {0, 2, 3, 1, 4});
  Value scores =
      ops::Einsum("bkgth,bskh->bkgts", q_BKGTH, k_BSKH, DType::kF32, options.matmul_precision);
  scores = ops::Mul(scores, 1.0 / std::sqrt(static_cast<double>(head_dim)));
  const Value mask = ops::BroadcastInDim(mask_BTS, scores.dims(), {0, 3, 4});
  scores =
      ops::Select(mask, scores, ops::FullLike(scores, -std::numeric_limits<double>::infinity()));
  // The shift cancels in the softmax, hence no gradient through it.
  const Value shift = ops::StopGradient(ops::ReduceMax(scores, {-1}, /*keep_dims=*/true));
  const Value weights = ops::Exp(ops::Sub(scores, ops::BroadcastLike(shift, scores)));
  const Value total = ops::ReduceSum(weights, {-1}, /*keep_dims=*/true);
  const Value probabilities =
      ops::Convert(ops::Div(weights, ops::BroadcastLike(total, weights)), v_BSKH.dtype());
  const Value out_BKGTH = ops::Einsum("bkgts,bskh->bkgth", probabilities, v_BSKH, q_BTNH.dtype(),
                                      options.matmul_precision);
  return ops::Reshape(ops::Transpose(out_BKGTH, {0, 3, 1, 2, 4}), {rows, tokens, heads, head_dim});
}

Value FlashAttention(Value q_BTNH, Value k_BTKH, Value v_BTKH, Value segment_ids_BT,
                     const ComputeOptions& options, const std::string& residual_name) {
  const Dims grouped = GroupedHeads(q_BTNH, k_BTKH);
  ops::AttentionOptions attention;
  attention.scale = 1.0 / std::sqrt(static_cast<double>(q_BTNH.dim(3)));
  attention.precision = options.matmul_precision;
  attention.residual_name = residual_name;
  const Value out_BKGTH =
      ops::Attention(ops::Transpose(ops::Reshape(q_BTNH, grouped), {0, 2, 3, 1, 4}),
                     ops::Transpose(k_BTKH, {0, 2, 1, 3}), ops::Transpose(v_BTKH, {0, 2, 1, 3}),
                     segment_ids_BT, attention)
          .out;
  return ops::Reshape(ops::Transpose(out_BKGTH, {0, 3, 1, 2, 4}), q_BTNH.dims());
}

Value CachedAttention(Value q_BTNH, Value k_BTKH, Value v_BTKH, Value layer, Value start_B,
                      const ComputeOptions& options, CachedKeys* cache) {
  const Value q_BTKGH = ops::Reshape(q_BTNH, GroupedHeads(q_BTNH, k_BTKH));
  const ops::CachedAttentionResult result = ops::CachedAttention(
      {q_BTKGH, k_BTKH, v_BTKH, cache->k, cache->v, layer, start_B},
      1.0 / std::sqrt(static_cast<double>(q_BTNH.dim(3))), options.matmul_precision);
  *cache = {result.k_cache_LBSKH, result.v_cache_LBSKH};
  return ops::Reshape(result.out_BTKGH, q_BTNH.dims());
}

}  // namespace mw::nn
