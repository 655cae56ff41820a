#include "meshwright/ops/adamw.h"

#include <fmt/format.h>

#include <vector>

#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cpu_kernel.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/operand_parameters.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/sqrt.h"
#include "meshwright/ops/sub.h"
#include "meshwright/ops/sum_of_squares.h"

namespace mw::ops {
namespace {

// param, m, v, grad; rate, m_correction, v_correction, scale, shrink; apply.
constexpr int kTensors = 4, kOperands = 10;

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "adamw"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kFloat);
    const Dims& dims = node.operand(0).dims();
    for (int i = 1; i < kOperands; ++i) {
      const TensorType expected(i + 1 < kOperands ? DType::kF32 : DType::kPred,
                                i < kTensors ? dims : Dims{});
      const TensorType& type = node.operand(i).type();
      if (type.dtype == expected.dtype && type.dims == expected.dims) continue;
      node.Fail(fmt::format("operand {} is {}; with a parameter {} it must be {}", i,
                            type.ToString(), node.operand(0).type().ToString(),
                            expected.ToString()));
    }
    return {TensorType(node.operand(0).dtype(), dims), TensorType(DType::kF32, dims),
            TensorType(DType::kF32, dims)};
  }

  ShardingRule Sharding(const Node& node) const override {
    std::string dims;
    for (int64_t d = 0; d < node.operand(0).rank(); ++d) dims += static_cast<char>('a' + d);
    std::vector<std::string> operands(kTensors, dims);
    operands.resize(kOperands);
    return ShardingRule::Factors(std::move(operands), {dims, dims, dims});
  }

  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    std::vector<std::string> results;
    if (HasCpuKernels(ctx.target()) && CpuKernelsTake(node.operand(0).dtype())) {
      std::vector<std::pair<std::string, std::string>> config;
      for (const char* name : {"b1", "b2", "eps", "decay"}) {
        config.emplace_back(name, F64Attribute(node.attrs().Get<double>(name)));
      }
      const bool narrow = node.attrs().Get<DType>("grad_dtype") == DType::kBF16;
      config.emplace_back("round_grad", narrow ? "true" : "false");
      results = CallCpuKernel(ctx, "meshwright.adamw", config, {0, 1, 2});
    } else {
      results = InlineOverOperands(ctx, *PlainAdamWInPlace(node));
    }
    for (int i = 0; i < 3; ++i) ctx.Set(i, results[i]);
  }
};

}  // namespace

const OpDef& AdamWOp() {
  static const Def* const def = new Def();
  return *def;
}

AdamWResult AdamW(const AdamWOperands& o, const AdamWOptions& options) {
  const Value p = Convert(o.param, DType::kF32);
  const Value m = Add(Mul(o.m, options.b1), Mul(o.grad, 1 - options.b1));
  const Value v = Add(Mul(o.v, options.b2), Mul(Square(o.grad), 1 - options.b2));
  const Value root = Sqrt(Div(v, BroadcastLike(o.v_correction, v)));
  Value step = Div(Div(m, BroadcastLike(o.m_correction, m)), Add(root, options.eps));
  if (options.decay != 0) step = Add(step, Mul(p, options.decay));
  step = Mul(step, BroadcastLike(o.rate, step));
  return {Convert(Sub(p, step), o.param.dtype()), m, v};
}

AdamWResult AdamWInPlace(const AdamWOperands& o, const GradientScale& gradient, Value apply,
                         const AdamWOptions& options) {
  const std::vector<Value> operands = {
      o.param,         o.m,  o.v, o.grad, o.rate, o.m_correction, o.v_correction, gradient.scale,
      gradient.shrink, apply};
  Node* node = graph::CommonGraph(operands).AddNode(AdamWOp(), operands,
                                                    {{"b1", options.b1},
                                                     {"b2", options.b2},
                                                     {"eps", options.eps},
                                                     {"decay", options.decay},
                                                     {"grad_dtype", gradient.dtype}});
  return {node->result(0), node->result(1), node->result(2)};
}

std::unique_ptr<Graph> PlainAdamWInPlace(const Node& node) {
  auto graph = std::make_unique<Graph>();
  const std::vector<Value> in = OperandParameters(*graph, node);
  const auto& attrs = node.attrs();
  const Value scaled = ScaledGradient(in[3], in[7], attrs.Get<DType>("grad_dtype"));
  const AdamWResult made = AdamW({.param = in[0],
                                  .m = in[1],
                                  .v = in[2],
                                  .grad = Mul(scaled, BroadcastLike(in[8], scaled)),
                                  .rate = in[4],
                                  .m_correction = in[5],
                                  .v_correction = in[6]},
                                 {.b1 = attrs.Get<double>("b1"),
                                  .b2 = attrs.Get<double>("b2"),
                                  .eps = attrs.Get<double>("eps"),
                                  .decay = attrs.Get<double>("decay")});
  graph->SetOutputs({Select(in[9], made.param, in[0]), Select(in[9], made.m, in[1]),
                     Select(in[9], made.v, in[2])});
  return graph;
}

}  // namespace mw::ops
