#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/ops/adamw.h"
#include "meshwright/ops/sum_of_squares.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;
using Values = std::vector<Value>;

const TensorType kScalar(DType::kF32, {});

OpCase AdamW(std::string name, DType param, double decay) {
  OpCase c;
  c.op = "adamw";
  c.name = std::move(name);
  const TensorType slot(DType::kF32, {3, 5});
  c.inputs = {
      TensorType(param, {3, 5}),   slot, slot, slot, kScalar, kScalar, kScalar, kScalar, kScalar,
      TensorType(DType::kPred, {})};
  c.low = 0.1;  // second moments and corrections are positive
  c.build = [decay](Graph&, const Values& in) {
    const ops::AdamWResult made = ops::AdamWInPlace(
        {in[0], in[1], in[2], in[3], in[4], in[5], in[6]}, {in[7], DType::kF32, in[8]}, in[9],
        {.b1 = 0.875, .b2 = 0.75, .eps = 0.125, .decay = decay});
    return Values{made.param, made.m, made.v};
  };
  c.check_gradient = false;
  return c;
}

}  // namespace

std::vector<OpCase> UpdateCases() {
  std::vector<OpCase> cases;
  cases.push_back(AdamW("f32", DType::kF32, 0.5));
  cases.back().rejected = [](Graph& g) {
    const Value p = g.AddParameter(TensorType(DType::kF32, {3}), "p");
    const Value m = g.AddParameter(TensorType(DType::kF32, {4}), "m");
    const Value s = g.AddParameter(kScalar, "s");
    const Value apply = g.AddParameter(TensorType(DType::kPred, {}), "apply");
    ops::AdamWInPlace({p, m, m, m, s, s, s}, {s, DType::kF32, s}, apply, {});
  };
  cases.push_back(AdamW("bf16", DType::kBF16, 0));

  OpCase squares;
  squares.op = "sum_of_squares";
  squares.inputs = {TensorType(DType::kF32, {3, 5, 2}), kScalar};
  squares.build = [](Graph&, const Values& in) {
    return Values{ops::SumOfSquares(in[0], in[1], DType::kF32)};
  };
  squares.check_gradient = false;
  squares.rejected = [](Graph& g) {
    const Value x = g.AddParameter(TensorType(DType::kF32, {3}), "x");
    ops::SumOfSquares(x, x, DType::kF32);
  };
  cases.push_back(std::move(squares));
  return cases;
}

}  // namespace mw
