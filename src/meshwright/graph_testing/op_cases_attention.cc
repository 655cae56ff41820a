#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/ops/attention.h"
#include "meshwright/ops/attention_grad.h"

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
  return cases;
}

}  // namespace mw
