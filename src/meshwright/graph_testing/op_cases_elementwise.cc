#include <functional>
#include <utility>

#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/ops/abs.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/and.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/cos.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/expm1.h"
#include "meshwright/ops/floor.h"
#include "meshwright/ops/is_finite.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/log1p.h"
#include "meshwright/ops/logistic.h"
#include "meshwright/ops/max.h"
#include "meshwright/ops/min.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/not.h"
#include "meshwright/ops/or.h"
#include "meshwright/ops/pow.h"
#include "meshwright/ops/rem.h"
#include "meshwright/ops/rsqrt.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/shift_left.h"
#include "meshwright/ops/shift_right_logical.h"
#include "meshwright/ops/sign.h"
#include "meshwright/ops/sin.h"
#include "meshwright/ops/sqrt.h"
#include "meshwright/ops/sub.h"
#include "meshwright/ops/tanh.h"
#include "meshwright/ops/xor.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;
using Unary = Value (*)(Value);
using Binary = Value (*)(Value, Value);

// 5 divides by no mesh, 4 by most.
TensorType Of(DType dtype) { return TensorType(dtype, {4, 5}); }

Value Input(Graph& graph, DType dtype, Dims dims) {
  return graph.AddParameter(TensorType(dtype, std::move(dims)), "x");
}

OpCase UnaryCase(std::string op, std::string name, Unary f, DType dtype, bool gradient, double low,
                 double high) {
  return {.op = std::move(op),
          .name = std::move(name),
          .inputs = {Of(dtype)},
          .build = [f](Graph&, const std::vector<Value>& in) { return std::vector{f(in[0])}; },
          .check_gradient = gradient,
          .low = low,
          .high = high,
          .rejected = {}};
}

OpCase BinaryCase(std::string op, std::string name, Binary f, DType dtype, bool gradient,
                  double low, double high) {
  return {
      .op = std::move(op),
      .name = std::move(name),
      .inputs = {Of(dtype), Of(dtype)},
      .build = [f](Graph&, const std::vector<Value>& in) { return std::vector{f(in[0], in[1])}; },
      .check_gradient = gradient,
      .low = low,
      .high = high,
      .rejected =
          [f, dtype](Graph& g) {
            f(Input(g, dtype, {4, 5}), Input(g, dtype, {5}));
          }};
}

void AddUnary(std::vector<OpCase>* cases) {
  // The rejected element type is pred for arithmetic, float for Not, and nothing
  // is wrong with a shape.
  auto add = [cases](const char* op, Unary f, double low, double high, bool gradient = true) {
    OpCase c = UnaryCase(op, "f32", f, DType::kF32, gradient, low, high);
    c.rejected = [f](Graph& g) { f(Input(g, DType::kPred, {4})); };
    cases->push_back(std::move(c));
  };
  add("neg", ops::Neg, -2, 2);
  add("exp", ops::Exp, -2, 2);
  add("expm1", ops::Expm1, -2, 2);
  add("log", ops::Log, 0.3, 3);
  add("log1p", ops::Log1p, -0.5, 2);
  add("tanh", ops::Tanh, -2, 2);
  add("logistic", ops::Logistic, -3, 3);
  add("sqrt", ops::Sqrt, 0.3, 3);
  add("rsqrt", ops::Rsqrt, 0.3, 3);
  add("cos", ops::Cos, -3, 3);
  add("sin", ops::Sin, -3, 3);
  add("abs", ops::Abs, 0.2, 2);
  add("sign", ops::Sign, -2, 2, false);
  add("floor", ops::Floor, -3, 3, false);
  add("is_finite", ops::IsFinite, -1, 1, false);
  cases->push_back(UnaryCase("abs", "negative", ops::Abs, DType::kF32, true, -2, -0.2));
  cases->push_back(UnaryCase("abs", "s32", ops::Abs, DType::kS32, false, -9, 9));
  cases->push_back(UnaryCase("sign", "s32", ops::Sign, DType::kS32, false, -9, 9));
  cases->push_back(UnaryCase("neg", "s32", ops::Neg, DType::kS32, false, -9, 9));
  cases->push_back(UnaryCase("neg", "bf16", ops::Neg, DType::kBF16, false, -2, 2));
  cases->push_back(UnaryCase("tanh", "bf16", ops::Tanh, DType::kBF16, false, -2, 2));
  OpCase c = UnaryCase("not", "pred", ops::Not, DType::kPred, false, 0, 1);
  c.rejected = [](Graph& g) { ops::Not(Input(g, DType::kF32, {4})); };
  cases->push_back(std::move(c));
  cases->push_back(UnaryCase("not", "u32", ops::Not, DType::kU32, false, 0, 1000));
}

void AddBinary(std::vector<OpCase>* cases) {
  auto add = [cases](const char* op, const char* name, Binary f, DType dtype, double low,
                     double high) {
    cases->push_back(BinaryCase(op, name, f, dtype, dtype == DType::kF32, low, high));
  };
  add("add", "f32", ops::Add, DType::kF32, -2, 2);
  add("add", "s32", ops::Add, DType::kS32, -9, 9);
  add("add", "bf16", ops::Add, DType::kBF16, -2, 2);
  add("sub", "f32", ops::Sub, DType::kF32, -2, 2);
  add("sub", "u32", ops::Sub, DType::kU32, 0, 9);
  add("mul", "f32", ops::Mul, DType::kF32, -2, 2);
  add("mul", "s32", ops::Mul, DType::kS32, -9, 9);
  add("div", "f32", ops::Div, DType::kF32, 0.5, 3);
  add("div", "s32", ops::Div, DType::kS32, 1, 20);
  add("max", "f32", ops::Maximum, DType::kF32, -2, 2);
  add("max", "s32", ops::Maximum, DType::kS32, -9, 9);
  add("min", "f32", ops::Minimum, DType::kF32, -2, 2);
  add("min", "u32", ops::Minimum, DType::kU32, 0, 9);
  add("pow", "f32", ops::Pow, DType::kF32, 0.5, 2);
  add("rem", "s32", ops::Rem, DType::kS32, 1, 20);
  add("and", "pred", ops::And, DType::kPred, 0, 1);
  add("and", "u32", ops::And, DType::kU32, 0, 1000);
  add("or", "pred", ops::Or, DType::kPred, 0, 1);
  add("or", "s32", ops::Or, DType::kS32, 0, 1000);
  add("xor", "pred", ops::Xor, DType::kPred, 0, 1);
  add("xor", "u32", ops::Xor, DType::kU32, 0, 1000);
  add("shift_left", "u32", ops::ShiftLeft, DType::kU32, 0, 12);
  add("shift_right_logical", "u32", ops::ShiftRightLogical, DType::kU32, 0, 12);
  add("shift_right_logical", "s32", ops::ShiftRightLogical, DType::kS32, -12, 12);

  // 7 and a divisor in (2.4, 3.4) keep the remainder away from its steps.
  OpCase rem = UnaryCase(
      "rem", "f32",
      [](Value x) { return ops::Rem(ops::Add(ops::Mul(x, 0.1), 7.0), ops::Add(x, 2.9)); },
      DType::kF32, true, -0.4, 0.4);
  cases->push_back(std::move(rem));
  // The exponents that a derivative must not turn into NaN.
  cases->push_back(UnaryCase(
      "pow", "square of any sign", [](Value x) { return ops::Pow(x, 2.0); }, DType::kF32, true, -2,
      2));
  cases->push_back(UnaryCase(
      "pow", "exponent zero", [](Value x) { return ops::Pow(x, 0.0); }, DType::kF32, true, -2, 2));
  // Ties: half the gradient to each operand gives the whole one to x.
  cases->push_back(UnaryCase(
      "max", "tie", [](Value x) { return ops::Maximum(x, x); }, DType::kF32, true, -2, 2));
  cases->push_back(UnaryCase(
      "min", "tie", [](Value x) { return ops::Minimum(x, x); }, DType::kF32, true, -2, 2));
}

void AddCompareAndSelect(std::vector<OpCase>* cases) {
  const std::pair<const char*, Binary> comparisons[] = {
      {"EQ", ops::Equal},     {"NE", ops::NotEqual}, {"LT", ops::Less},
      {"LE", ops::LessEqual}, {"GT", ops::Greater},  {"GE", ops::GreaterEqual}};
  for (const auto& [direction, f] : comparisons) {
    cases->push_back(
        BinaryCase("compare", std::string(direction) + " s32", f, DType::kS32, false, -2, 2));
  }
  cases->push_back(BinaryCase("compare", "LT f32", ops::Less, DType::kF32, false, -2, 2));
  cases->push_back(BinaryCase("compare", "GE u32", ops::GreaterEqual, DType::kU32, false, 0, 3));
  cases->push_back(BinaryCase("compare", "NE pred", ops::NotEqual, DType::kPred, false, 0, 1));

  const TensorType value = Of(DType::kF32);
  auto select = [](Graph&, const std::vector<Value>& in) {
    return std::vector{ops::Select(in[0], in[1], in[2])};
  };
  cases->push_back({.op = "select",
                    .name = "elementwise",
                    .inputs = {Of(DType::kPred), value, value},
                    .build = select,
                    .rejected = [](Graph& g) {
                      ops::Select(Input(g, DType::kPred, {5}), Input(g, DType::kF32, {4, 5}),
                                  Input(g, DType::kF32, {4, 5}));
                    }});
  cases->push_back({.op = "select",
                    .name = "scalar",
                    .inputs = {TensorType(DType::kPred, {}), value, value},
                    .build = select,
                    .rejected = [](Graph& g) {
                      const Value x = Input(g, DType::kF32, {4});
                      ops::Select(x, x, x);
                    }});

  const std::pair<DType, DType> conversions[] = {
      {DType::kF32, DType::kBF16}, {DType::kBF16, DType::kF32}, {DType::kF32, DType::kS32},
      {DType::kS32, DType::kF32},  {DType::kPred, DType::kF32}, {DType::kU32, DType::kS64}};
  for (const auto& [from, to] : conversions) {
    cases->push_back({.op = "convert",
                      .name = std::string(DTypeName(from)) + " to " + std::string(DTypeName(to)),
                      .inputs = {Of(from)},
                      .build =
                          [to = to](Graph&, const std::vector<Value>& in) {
                            return std::vector{ops::Convert(in[0], to)};
                          },
                      .check_gradient = false,
                      .low = from == DType::kU32 ? 0.0 : -3.0,
                      .high = 3.0,
                      .rejected = {}});
  }
  // Through a wider type and back, where finite differences see no rounding.
  cases->push_back({.op = "convert",
                    .name = "gradient",
                    .inputs = {value},
                    .build =
                        [](Graph&, const std::vector<Value>& in) {
                          return std::vector{
                              ops::Convert(ops::Convert(in[0], DType::kF64), DType::kF32)};
                        },
                    .rejected = {}});
}

}  // namespace

std::vector<OpCase> ElementwiseCases() {
  std::vector<OpCase> cases;
  AddUnary(&cases);
  AddBinary(&cases);
  AddCompareAndSelect(&cases);
  return cases;
}

}  // namespace mw
