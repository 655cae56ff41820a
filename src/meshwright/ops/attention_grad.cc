#include "meshwright/ops/attention_grad.h"

#include <fmt/format.h>

#include "meshwright/ops/attention.h"
#include "meshwright/ops/attention_kernel.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/operand_parameters.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "attention_grad"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kFloat);
    const TensorType& q = node.operand(0).type();
    const TensorType& k = node.operand(1).type();
    const TensorType& dout = node.operand(6).type();
    bool fit = q.rank() == 5 && k.rank() == 4;
    if (fit) {
      const Dims row = {q.dims[0], q.dims[1], q.dims[2], q.dims[3]};
      const TensorType& segments = node.operand(3).type();
      fit = k.dtype == q.dtype && k.dims == Dims{q.dims[0], q.dims[1], q.dims[3], q.dims[4]} &&
            node.operand(2).dtype() == q.dtype && node.operand(2).dims() == k.dims &&
            segments.dtype == DType::kS32 && segments.dims == Dims{q.dims[0], q.dims[3]} &&
            dout.dtype == q.dtype && dout.dims == q.dims;
      for (int i = 4; i < 6; ++i) {
        fit = fit && node.operand(i).dtype() == SoftmaxDType(q.dtype) &&
              node.operand(i).dims() == row;
      }
    }
    if (!fit) {
      node.Fail(fmt::format(
          "q {}, k {}, v {}, segments {}, log_sum_exp {}, delta {}, dout {} do not fit; they must "
          "be [B,K,G,T,H], [B,K,T,H], [B,K,T,H] of one float dtype, s32[B,T], {}[B,K,G,T] twice "
          "and "
          "as q",
          q.ToString(), k.ToString(), node.operand(2).type().ToString(),
          node.operand(3).type().ToString(), node.operand(4).type().ToString(),
          node.operand(5).type().ToString(), dout.ToString(), DTypeName(SoftmaxDType(q.dtype))));
    }
    const TensorType of_keys(k.dtype, k.dims);
    return {TensorType(q.dtype, q.dims), of_keys, of_keys};
  }

  ShardingRule Sharding(const Node&) const override {
    ShardingRule rule = ShardingRule::Factors(
        {"bkgth", "bkth", "bkth", "bt", "bkgt", "bkgt", "bkgth"}, {"bkgth", "bkth", "bkth"});
    rule.whole = "gth";
    return rule;
  }

  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}

  void Lower(LowerContext& ctx) const override {
    if (HasCpuAttentionKernel(ctx)) {
      const std::vector<std::string> results =
          CallCpuAttentionKernel(ctx, "meshwright.attention_grad");
      for (int i = 0; i < 3; ++i) ctx.Set(i, results[i]);
      return;
    }
    if (!HasAttentionKernel(ctx)) {
      const std::vector<std::string> results =
          InlineOverOperands(ctx, *PlainAttentionGrad(ctx.node()));
      for (int i = 0; i < 3; ++i) ctx.Set(i, results[i]);
      return;
    }
    const mosaic::FlashAttention attention = FlashAttentionOf(ctx.node());
    const mosaic::FlashBlocks blocks = mosaic::BlocksOf(attention);
    const std::vector<TensorType>& types = ctx.node().types();
    const auto call = [&](mosaic::FlashGradient what, const std::vector<TensorType>& results) {
      return CallAttentionKernel(ctx, mosaic::FlashBackward(attention, blocks, what), results);
    };
    using enum mosaic::FlashGradient;
    if (mosaic::FitsOneBackward(attention)) {
      const auto results = call(kAll, {types[1], types[2], types[0]});
      ctx.Set(1, results[0]);
      ctx.Set(2, results[1]);
      ctx.Set(0, results[2]);
    } else {
      ctx.Set(0, call(kQuery, {types[0]})[0]);
      const auto results = call(kKeyValue, {types[1], types[2]});
      ctx.Set(1, results[0]);
      ctx.Set(2, results[1]);
    }
  }
};

}  // namespace

const OpDef& AttentionGradOp() {
  static const Def* const def = new Def();
  return *def;
}

AttentionGradResult AttentionGrad(const AttentionGradOperands& o, double scale,
                                  const std::string& precision) {
  const std::vector<Value> operands = {o.q_BKGTH,          o.k_BKTH,     o.v_BKTH,    o.segments_BT,
                                       o.log_sum_exp_BKGT, o.delta_BKGT, o.dout_BKGTH};
  Node* node = graph::CommonGraph(operands).AddNode(AttentionGradOp(), operands,
                                                    {{"scale", scale}, {"precision", precision}});
  return {node->result(0), node->result(1), node->result(2)};
}

}  // namespace mw::ops
