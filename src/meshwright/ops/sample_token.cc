#include "meshwright/ops/sample_token.h"

#include <fmt/format.h>

#include "meshwright/ops/add.h"
#include "meshwright/ops/argmax.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/cpu_kernel.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/operand_parameters.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/sub.h"
#include "meshwright/ops/take_along_last.h"

namespace mw::ops {
namespace {

constexpr int kOperands = 6;

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "sample_token"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& logits = node.operand(0).type();
    const Dims rows = logits.rank() == 2 ? Dims{logits.dims[0]} : Dims{};
    const TensorType expected[] = {
        logits,
        TensorType(DType::kU32, rows),
        TensorType(DType::kU32, rows),
        TensorType(DType::kU32, {2}),
        TensorType(DType::kF32, {}),
        TensorType(DType::kF32, {}),
    };
    bool fit = logits.dtype == DType::kF32 && logits.rank() == 2 && logits.dims[1] > 0;
    for (int i = 1; i < kOperands; ++i) {
      fit = fit && node.operand(i).dtype() == expected[i].dtype &&
            node.operand(i).dims() == expected[i].dims;
    }
    if (!fit) {
      node.Fail(
          fmt::format("logits {}, row ids {}, step {}, seed {}, temperatures {} and {} do not "
                      "fit; they must be f32[B,V], u32[B], u32[B], u32[2], f32[] and f32[]",
                      logits.ToString(), node.operand(1).type().ToString(),
                      node.operand(2).type().ToString(), node.operand(3).type().ToString(),
                      node.operand(4).type().ToString(), node.operand(5).type().ToString()));
    }
    return {TensorType(DType::kS32, rows), TensorType(DType::kF32, rows)};
  }

  ShardingRule Sharding(const Node&) const override {
    ShardingRule rule = ShardingRule::Factors({"bv", "b", "b", "s", "", ""}, {"b", "b"});
    rule.whole = "vs";
    return rule;
  }

  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    std::vector<std::string> results;
    if (HasCpuKernels(ctx.target()) && node.operand(0).dim(0) > 0) {
      results = CallCpuKernel(ctx, "meshwright.sample_token",
                              {{"site", fmt::format("{} : i64", node.attrs().Int("site"))}});
    } else {
      results = InlineOverOperands(ctx, *PlainSampleToken(node));
    }
    for (int i = 0; i < 2; ++i) ctx.Set(i, results[static_cast<size_t>(i)]);
  }
};

}  // namespace

const OpDef& SampleTokenOp() {
  static const Def* const def = new Def();
  return *def;
}

SampledTokens SampleToken(Value logits_BV, Value row_ids_B, const RandomStream& noise,
                          Value temperature, Value log_prob_temperature) {
  const std::vector<Value> operands = {logits_BV,  row_ids_B,   noise.step,
                                       noise.seed, temperature, log_prob_temperature};
  Node* node = graph::CommonGraph(operands).AddNode(SampleTokenOp(), operands,
                                                    {{"site", int64_t{noise.site}}});
  return {node->result(0), node->result(1)};
}

std::unique_ptr<Graph> PlainSampleToken(const Node& node) {
  auto graph = std::make_unique<Graph>();
  const std::vector<Value> in = OperandParameters(*graph, node);
  const Value logits = in[0];
  const Value noise = Gumbel(
      {.seed = in[3], .step = in[2], .site = static_cast<uint32_t>(node.attrs().Int("site"))},
      in[1], logits.dim(1));
  const Value tokens = ArgMax(Add(Div(logits, BroadcastLike(in[4], logits)), noise), -1);
  graph->SetOutputs({tokens, LogProbOfToken(Div(logits, BroadcastLike(in[5], logits)), tokens)});
  return graph;
}

Value LogProbOfToken(Value logits_BV, Value tokens_B) {
  const Value shift = ReduceMax(logits_BV, {-1});
  const Value shifted = Sub(logits_BV, BroadcastInDim(shift, logits_BV.dims(), {0}));
  return Sub(TakeAlongLast(shifted, tokens_B), Log(ReduceSum(Exp(shifted), {-1})));
}

}  // namespace mw::ops
