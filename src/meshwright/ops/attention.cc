#include "meshwright/ops/attention.h"

#include <fmt/format.h>

#include <limits>

#include "meshwright/ops/add.h"
#include "meshwright/ops/and.h"
#include "meshwright/ops/attention_grad.h"
#include "meshwright/ops/attention_kernel.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/name.h"
#include "meshwright/ops/operand_parameters.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/sub.h"

namespace mw::ops {
namespace {

// s, -inf where hidden: f32 [B, K, G, T, T].
Value Scores(const Node& node, Value q, Value k, Value segments) {
  Graph& graph = q.graph();
  Value scores =
      Einsum("bkgth,bksh->bkgts", q, k, SoftmaxDType(q.dtype()), node.attrs().String("precision"));
  scores = Mul(scores, node.attrs().Get<double>("scale"));
  const Dims dims = {q.dim(0), q.dim(3), q.dim(3)};
  const Value same =
      Equal(BroadcastInDim(segments, dims, {0, 1}), BroadcastInDim(segments, dims, {0, 2}));
  const Value earlier =
      LessEqual(Iota(graph, DType::kS32, dims, 2), Iota(graph, DType::kS32, dims, 1));
  const Value mask = BroadcastInDim(And(same, earlier), scores.dims(), {0, 3, 4});
  return Select(mask, scores, FullLike(scores, -std::numeric_limits<double>::infinity()));
}

Value OverKeys(Value x_BKGT, Value scores) {
  return BroadcastInDim(x_BKGT, scores.dims(), {0, 1, 2, 3});
}

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "attention"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kFloat);
    const TensorType& q = node.operand(0).type();
    const TensorType& k = node.operand(1).type();
    const TensorType& v = node.operand(2).type();
    const TensorType& segments = node.operand(3).type();
    const bool ranks = q.rank() == 5 && k.rank() == 4;
    if (!ranks || k.dtype != q.dtype || v.dtype != q.dtype || segments.dtype != DType::kS32 ||
        v.dims != k.dims || k.dims != Dims{q.dims[0], q.dims[1], q.dims[3], q.dims[4]} ||
        segments.dims != Dims{q.dims[0], q.dims[3]}) {
      node.Fail(
          fmt::format("q {}, k {}, v {}, segments {} do not fit; they must be [B,K,G,T,H], "
                      "[B,K,T,H], [B,K,T,H] of one float dtype, and s32[B,T]",
                      q.ToString(), k.ToString(), v.ToString(), segments.ToString()));
    }
    return {TensorType(q.dtype, q.dims),
            TensorType(SoftmaxDType(q.dtype), {q.dims[0], q.dims[1], q.dims[2], q.dims[3]})};
  }

  ShardingRule Sharding(const Node&) const override {
    ShardingRule rule = ShardingRule::Factors({"bkgth", "bkth", "bkth", "bt"}, {"bkgth", "bkgt"});
    rule.whole = "gth";
    return rule;
  }

  // The names are what a policy keeps or recomputes, the kernel with them.
  std::vector<Value> VjpForward(VjpForwardContext& ctx) const override {
    std::vector<Value> results = OpDef::VjpForward(ctx);
    const std::string& name = ctx.node().attrs().String("residual_name");
    if (!name.empty()) {
      for (Value& v : results) v = Name(v, name);
    }
    return results;
  }

  void Vjp(VjpContext& ctx) const override {
    if (!ctx.wants(0) && !ctx.wants(1) && !ctx.wants(2)) return;
    const Value out = ctx.result(0);
    const DType softmax = SoftmaxDType(out.dtype());
    const Value dout =
        ctx.cotangent(0) ? Convert(*ctx.cotangent(0), out.dtype()) : FullLike(out, 0);
    Value delta = ReduceSum(Mul(Convert(out, softmax), Convert(dout, softmax)), {out.rank() - 1});
    if (ctx.cotangent(1)) delta = Sub(delta, *ctx.cotangent(1));
    const AttentionGradResult gradient = AttentionGrad(
        {ctx.operand(0), ctx.operand(1), ctx.operand(2), ctx.operand(3), ctx.result(1), delta,
         dout},
        ctx.node().attrs().Get<double>("scale"), ctx.node().attrs().String("precision"));
    if (ctx.wants(0)) ctx.Add(0, gradient.dq);
    if (ctx.wants(1)) ctx.Add(1, gradient.dk);
    if (ctx.wants(2)) ctx.Add(2, gradient.dv);
  }

  void Lower(LowerContext& ctx) const override {
    std::vector<std::string> results;
    if (HasCpuAttentionKernel(ctx)) {
      results = CallCpuAttentionKernel(ctx, "meshwright.attention");
    } else if (HasAttentionKernel(ctx)) {
      const mosaic::FlashAttention attention = FlashAttentionOf(ctx.node());
      results = CallAttentionKernel(
          ctx, mosaic::FlashForward(attention, mosaic::BlocksOf(attention)), ctx.node().types());
    } else {
      results = InlineOverOperands(ctx, *PlainAttention(ctx.node()));
    }
    for (int i = 0; i < 2; ++i) ctx.Set(i, results[i]);
  }
};

}  // namespace

const OpDef& AttentionOp() {
  static const Def* const def = new Def();
  return *def;
}

DType SoftmaxDType(DType q) { return q == DType::kF64 ? DType::kF64 : DType::kF32; }

AttentionResult Attention(Value q_BKGTH, Value k_BKTH, Value v_BKTH, Value segments_BT,
                          const AttentionOptions& options) {
  Node* node = graph::CommonGraph({q_BKGTH, k_BKTH, v_BKTH, segments_BT})
                   .AddNode(AttentionOp(), {q_BKGTH, k_BKTH, v_BKTH, segments_BT},
                            {{"scale", options.scale},
                             {"precision", options.precision},
                             {"residual_name", options.residual_name}});
  return {node->result(0), node->result(1)};
}

std::unique_ptr<Graph> PlainAttention(const Node& node) {
  auto graph = std::make_unique<Graph>();
  const std::vector<Value> in = OperandParameters(*graph, node);
  const Value scores = Scores(node, in[0], in[1], in[3]);
  const Value shift = ReduceMax(scores, {-1});
  const Value weights = Exp(Sub(scores, OverKeys(shift, scores)));
  const Value total = ReduceSum(weights, {-1});
  const Value probabilities = Convert(Div(weights, OverKeys(total, scores)), in[2].dtype());
  graph->SetOutputs({Einsum("bkgts,bksh->bkgth", probabilities, in[2], in[0].dtype(),
                            node.attrs().String("precision")),
                     Add(shift, Log(total))});
  return graph;
}

std::unique_ptr<Graph> PlainAttentionGrad(const Node& node) {
  auto graph = std::make_unique<Graph>();
  const std::vector<Value> in = OperandParameters(*graph, node);
  const Value &q = in[0], &k = in[1], &v = in[2], &dout = in[6];
  const std::string& precision = node.attrs().String("precision");
  const Value scores = Scores(node, q, k, in[3]);
  const Value p = Exp(Sub(scores, OverKeys(in[4], scores)));
  const Value dp = Einsum("bkgth,bksh->bkgts", dout, v, scores.dtype(), precision);
  const Value ds = Convert(Mul(p, Sub(dp, OverKeys(in[5], scores))), q.dtype());
  const auto scaled = [&](Value x) {
    return Convert(Mul(x, node.attrs().Get<double>("scale")), q.dtype());
  };
  graph->SetOutputs(
      {scaled(Einsum("bkgts,bksh->bkgth", ds, k, scores.dtype(), precision)),
       scaled(Einsum("bkgts,bkgth->bksh", ds, q, scores.dtype(), precision)),
       Einsum("bkgts,bkgth->bksh", Convert(p, q.dtype()), dout, q.dtype(), precision)});
  return graph;
}

}  // namespace mw::ops
