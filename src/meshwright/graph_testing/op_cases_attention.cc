#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/ops/attention.h"
#include "meshwright/ops/attention_grad.h"
#include "meshwright/ops/cached_attention.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;
using Values = std::vector<Value>;

// q, k, v, segments of rows of 5 tokens, which no axis divides.
std::vector<TensorType> Operands(DType dtype) {
  const TensorType key(dtype, {2, 2, 5, 4});
  return {TensorType(dtype, {2, 2, 3, 5, 4}), key, key, TensorType(DType::kS32, {2, 5})};
}

OpCase Forward(std::string name, DType dtype, std::string residual_name) {
  OpCase c;
  c.op = "attention";
  c.name = std::move(name);
  c.inputs = Operands(dtype);
  c.build = [residual_name](Graph&, const Values& in) {
    const ops::AttentionResult result =
        ops::Attention(in[0], in[1], in[2], in[3],
                       {.scale = 0.5, .precision = "highest", .residual_name = residual_name});
    return Values{result.out, result.log_sum_exp};
  };
  return c;
}

// Two new tokens of rows that have none or one, in caches of five slots and two layers.
OpCase Cached(std::string name, DType dtype) {
  OpCase c;
  c.op = "cached_attention";
  c.name = std::move(name);
  const TensorType key(dtype, {2, 2, 2, 4}), cache(dtype, {2, 2, 5, 2, 4});
  c.inputs = {
      TensorType(dtype, {2, 2, 2, 3, 4}), key, key, cache, cache, TensorType(DType::kS32, {}),
      TensorType(DType::kS32, {2})};
  c.low = 0;  // layers and tokens in the cache are 0 or 1
  c.build = [](Graph&, const Values& in) {
    const ops::CachedAttentionResult result =
        ops::CachedAttention({in[0], in[1], in[2], in[3], in[4], in[5], in[6]}, 0.5, "highest");
    return Values{result.out_BTKGH, result.k_cache_LBSKH, result.v_cache_LBSKH};
  };
  c.check_gradient = false;
  return c;
}

}  // namespace

std::vector<OpCase> AttentionCases() {
  std::vector<OpCase> cases;
  cases.push_back(Forward("grouped queries", DType::kF32, ""));
  cases.back().rejected = [](Graph& g) {
    const Value q = g.AddParameter(TensorType(DType::kF32, {2, 2, 3, 5, 4}), "q");
    const Value k = g.AddParameter(TensorType(DType::kF32, {2, 3, 5, 4}), "k");
    ops::Attention(q, k, k, g.AddParameter(TensorType(DType::kS32, {2, 5}), "segments"), {});
  };
  cases.push_back(Forward("named residuals", DType::kF32, "attn"));
  cases.push_back(Forward("bf16", DType::kBF16, ""));
  cases.back().check_gradient = false;  // the first case does, in float64

  OpCase gradient;
  gradient.op = "attention_grad";
  gradient.inputs = Operands(DType::kF32);
  const TensorType row(DType::kF32, {2, 2, 3, 5});
  gradient.inputs.insert(gradient.inputs.end(), {row, row, gradient.inputs[0]});
  gradient.build = [](Graph&, const Values& in) {
    const ops::AttentionGradResult result =
        ops::AttentionGrad({in[0], in[1], in[2], in[3], in[4], in[5], in[6]}, 0.5, "highest");
    return Values{result.dq, result.dk, result.dv};
  };
  gradient.check_gradient = false;
  gradient.rejected = [](Graph& g) {
    const Value q = g.AddParameter(TensorType(DType::kF32, {2, 2, 3, 5, 4}), "q");
    const Value k = g.AddParameter(TensorType(DType::kF32, {2, 2, 5, 4}), "k");
    const Value segments = g.AddParameter(TensorType(DType::kS32, {2, 5}), "segments");
    const Value row = g.AddParameter(TensorType(DType::kF32, {2, 2, 3, 4}), "row");
    ops::AttentionGrad({q, k, k, segments, row, row, q}, 1, "default");
  };
  cases.push_back(std::move(gradient));

  cases.push_back(Cached("f32", DType::kF32));
  cases.back().rejected = [](Graph& g) {
    const Value q = g.AddParameter(TensorType(DType::kF32, {2, 2, 2, 3, 4}), "q");
    const Value k = g.AddParameter(TensorType(DType::kF32, {2, 2, 2, 4}), "k");
    // One slot for two tokens.
    const Value cache = g.AddParameter(TensorType(DType::kF32, {2, 2, 1, 2, 4}), "cache");
    const Value layer = g.AddParameter(TensorType(DType::kS32, {}), "layer");
    const Value start = g.AddParameter(TensorType(DType::kS32, {2}), "start");
    ops::CachedAttention({q, k, k, cache, cache, layer, start}, 1, "default");
  };
  cases.push_back(Cached("bf16", DType::kBF16));
  return cases;
}

}  // namespace mw
