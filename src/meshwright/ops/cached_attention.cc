#include "meshwright/ops/cached_attention.h"

#include <fmt/format.h>

#include <limits>

#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cpu_kernel.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/dynamic_slice.h"
#include "meshwright/ops/dynamic_update_slice.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/operand_parameters.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/sub.h"
#include "meshwright/ops/transpose.h"

namespace mw::ops {
namespace {

constexpr int kOperands = 7;

Value UpdateCache(Value cache_LBSKH, Value layer, Value update_BTKH, Value start_B) {
  const Value update = Convert(update_BTKH, cache_LBSKH.dtype());
  const Value zero = FullLike(layer, 0);
  Value cache = cache_LBSKH;
  for (int64_t row = 0; row < update.dim(0); ++row) {
    const Value block = Reshape(SliceInDim(update, 0, row, row + 1),
                                {1, 1, update.dim(1), update.dim(2), update.dim(3)});
    const Value start = Reshape(SliceInDim(start_B, 0, row, row + 1), {});
    const Value index = FullLike(layer, static_cast<double>(row));
    cache = DynamicUpdateSlice(cache, block, {layer, index, start, zero, zero});
  }
  return cache;
}

Value CacheLayer(Value cache_LBSKH, Value layer, DType dtype) {
  const Dims& dims = cache_LBSKH.dims();
  return Convert(
      Reshape(DynamicSliceInDim(cache_LBSKH, layer, 1, 0), {dims[1], dims[2], dims[3], dims[4]}),
      dtype);
}

// Which slots each new token sees: pred [B, T, S].
Value CacheMask(Value start_B, int64_t num_tokens, int64_t num_slots) {
  Graph& graph = start_B.graph();
  const Dims dims = {start_B.dim(0), num_tokens, num_slots};
  const Value slot = Add(BroadcastInDim(start_B, dims, {0}), Iota(graph, start_B.dtype(), dims, 1));
  return LessEqual(Iota(graph, start_B.dtype(), dims, 2), slot);
}

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "cached_attention"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kFloat);
    CheckElementClass(node, 3, ElementClass::kFloat);
    std::vector<TensorType> types;
    for (int i = 0; i < kOperands; ++i) types.push_back(node.operand(i).type());
    const auto& [q, k, v, k_cache, v_cache, layer, start] =
        std::tie(types[0], types[1], types[2], types[3], types[4], types[5], types[6]);
    bool fit = q.rank() == 5 && k_cache.rank() == 5;
    if (fit) {
      const Dims new_keys = {q.dims[0], q.dims[1], q.dims[2], q.dims[4]};
      const Dims& c = k_cache.dims;
      fit = k.dtype == q.dtype && v.dtype == q.dtype && k.dims == new_keys && v.dims == new_keys &&
            v_cache.dtype == k_cache.dtype && v_cache.dims == c && c[1] == q.dims[0] &&
            c[2] >= q.dims[1] && c[3] == q.dims[2] && c[4] == q.dims[4] &&
            layer.dtype == DType::kS32 && layer.dims.empty() && start.dtype == DType::kS32 &&
            start.dims == Dims{q.dims[0]};
    }
    if (!fit) {
      node.Fail(fmt::format(
          "q {}, k {}, v {}, caches {} and {}, layer {}, start {} do not fit; they must be "
          "[B,T,K,G,H], [B,T,K,H] twice, of one float dtype, [L,B,S,K,H] twice with T <= S, s32[] "
          "and s32[B]",
          q.ToString(), k.ToString(), v.ToString(), k_cache.ToString(), v_cache.ToString(),
          layer.ToString(), start.ToString()));
    }
    return {TensorType(q.dtype, q.dims), TensorType(k_cache.dtype, k_cache.dims),
            TensorType(k_cache.dtype, k_cache.dims)};
  }

  ShardingRule Sharding(const Node&) const override {
    ShardingRule rule = ShardingRule::Factors({"btkgh", "btkh", "btkh", "lbskh", "lbskh", "", "b"},
                                              {"btkgh", "lbskh", "lbskh"});
    rule.whole = "ltsgh";
    return rule;
  }

  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    std::vector<std::string> results;
    if (HasCpuKernels(ctx.target()) && CpuKernelsTake(node.operand(0).dtype()) &&
        CpuKernelsTake(node.operand(3).dtype())) {
      const std::string scale = F64Attribute(node.attrs().Get<double>("scale"));
      results = CallCpuKernel(ctx, "meshwright.cached_attention", {{"scale", scale}}, {-1, 3, 4});
    } else {
      results = InlineOverOperands(ctx, *PlainCachedAttention(node));
    }
    for (int i = 0; i < 3; ++i) ctx.Set(i, results[i]);
  }
};

}  // namespace

const OpDef& CachedAttentionOp() {
  static const Def* const def = new Def();
  return *def;
}

CachedAttentionResult CachedAttention(const CachedAttentionOperands& o, double scale,
                                      const std::string& precision) {
  const std::vector<Value> operands = {o.q_BTKGH,       o.k_BTKH, o.v_BTKH, o.k_cache_LBSKH,
                                       o.v_cache_LBSKH, o.layer,  o.start_B};
  Node* node = graph::CommonGraph(operands).AddNode(CachedAttentionOp(), operands,
                                                    {{"scale", scale}, {"precision", precision}});
  return {node->result(0), node->result(1), node->result(2)};
}

std::unique_ptr<Graph> PlainCachedAttention(const Node& node) {
  auto graph = std::make_unique<Graph>();
  const std::vector<Value> in = OperandParameters(*graph, node);
  const Value &q = in[0], &layer = in[5], &start = in[6];
  const Value k_cache = UpdateCache(in[3], layer, in[1], start);
  const Value v_cache = UpdateCache(in[4], layer, in[2], start);
  const Value k = CacheLayer(k_cache, layer, q.dtype());
  const Value v = CacheLayer(v_cache, layer, q.dtype());
  const std::string& precision = node.attrs().String("precision");
  // The score matrix comes out of the product in the order in which it is used, so that only the
  // small operands are ever transposed.
  Value scores =
      Einsum("bkgth,bskh->bkgts", Transpose(q, {0, 2, 3, 1, 4}), k, DType::kF32, precision);
  scores = Mul(scores, node.attrs().Get<double>("scale"));
  const Value mask = BroadcastInDim(CacheMask(start, q.dim(1), k.dim(1)), scores.dims(), {0, 3, 4});
  scores = Select(mask, scores, FullLike(scores, -std::numeric_limits<double>::infinity()));
  const auto over_keys = [&](Value x) { return BroadcastInDim(x, scores.dims(), {0, 1, 2, 3}); };
  const Value weights = Exp(Sub(scores, over_keys(ReduceMax(scores, {-1}))));
  const Value probabilities = Convert(Div(weights, over_keys(ReduceSum(weights, {-1}))), v.dtype());
  const Value out = Einsum("bkgts,bskh->bkgth", probabilities, v, q.dtype(), precision);
  graph->SetOutputs({Transpose(out, {0, 3, 1, 2, 4}), k_cache, v_cache});
  return graph;
}

}  // namespace mw::ops
