#include "meshwright/ops/sum_of_squares.h"

#include <fmt/format.h>

#include <vector>

#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cpu_kernel.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/operand_parameters.h"
#include "meshwright/ops/optimization_barrier.h"
#include "meshwright/ops/reduce.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "sum_of_squares"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& sum = node.operand(0).type();
    const TensorType& scale = node.operand(1).type();
    if (sum.dtype != DType::kF32 || scale.dtype != DType::kF32 || scale.rank() != 0) {
      node.Fail(fmt::format("sum {} and scale {} must be f32, the scale a scalar", sum.ToString(),
                            scale.ToString()));
    }
    return {TensorType(DType::kF32, {})};
  }

  ShardingRule Sharding(const Node& node) const override {
    std::string dims;
    for (int64_t d = 0; d < node.operand(0).rank(); ++d) dims += static_cast<char>('a' + d);
    return ShardingRule::Factors({dims, ""}, {""});
  }

  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    if (HasCpuKernels(ctx.target())) {
      const bool narrow = node.attrs().Get<DType>("dtype") == DType::kBF16;
      ctx.Set(0, CallCpuKernel(ctx, "meshwright.sum_of_squares",
                               {{"round_grad", narrow ? "true" : "false"}})[0]);
    } else {
      ctx.Set(0, InlineOverOperands(ctx, *PlainSumOfSquares(node))[0]);
    }
  }
};

}  // namespace

const OpDef& SumOfSquaresOp() {
  static const Def* const def = new Def();
  return *def;
}

Value StagedSumOfSquares(Value x, int first_dim) {
  Value squares = Square(x);
  if (squares.rank() - first_dim > 1) {
    // The barrier keeps the compiler from joining the stages again.
    squares = OptimizationBarrier({ReduceSum(squares, {-1})})[0];
  }
  std::vector<int64_t> dims;
  for (int d = first_dim; d < squares.rank(); ++d) dims.push_back(d);
  return ReduceSum(squares, dims);
}

Value ScaledGradient(Value sum, Value scale, DType dtype) {
  return Convert(Convert(Mul(sum, BroadcastLike(scale, sum)), dtype), DType::kF32);
}

Value SumOfSquares(Value sum, Value scale, DType dtype) {
  return graph::Apply(SumOfSquaresOp(), {sum, scale}, {{"dtype", dtype}});
}

std::unique_ptr<Graph> PlainSumOfSquares(const Node& node) {
  auto graph = std::make_unique<Graph>();
  const std::vector<Value> in = OperandParameters(*graph, node);
  const DType dtype = node.attrs().Get<DType>("dtype");
  graph->SetOutputs({StagedSumOfSquares(ScaledGradient(in[0], in[1], dtype))});
  return graph;
}

}  // namespace mw::ops
