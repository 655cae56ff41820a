#include "meshwright/ops/elementwise.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "meshwright/ops/add.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/is_finite.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/not.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/shift_left.h"
#include "meshwright/ops/sign.h"

namespace mw::ops {
namespace {

Value Input(Graph& g, DType dtype, Dims dims) {
  return g.AddParameter(TensorType(dtype, std::move(dims)), "x");
}

std::string ErrorOf(const std::function<void(Graph&)>& build) {
  Graph g;
  try {
    build(g);
  } catch (const GraphError& e) {
    EXPECT_EQ(e.code(), absl::StatusCode::kInvalidArgument);
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Elementwise, RejectionNamesOpAndShapes) {
  EXPECT_EQ(ErrorOf([](Graph& g) {
              Scope scope(g, "layers/mlp");
              Add(Input(g, DType::kF32, {2, 3}), Input(g, DType::kF32, {3}));
            }),
            "[add] operand shapes differ: f32[2,3] vs f32[3]; broadcast explicitly; "
            "scope layers/mlp");
  EXPECT_EQ(ErrorOf([](Graph& g) { Add(Input(g, DType::kF32, {2}), Input(g, DType::kBF16, {2})); }),
            "[add] operand dtypes differ: f32[2] vs bf16[2]; convert one of them");
  EXPECT_EQ(ErrorOf([](Graph& g) { Log(Input(g, DType::kS32, {2})); }),
            "[log] operand 0 is s32[2] but the op takes a float type");
  EXPECT_EQ(ErrorOf([](Graph& g) { Sign(Input(g, DType::kU32, {2})); }),
            "[sign] operand 0 is u32[2] but the op takes a float or signed integer type");
  EXPECT_EQ(ErrorOf([](Graph& g) { Not(Input(g, DType::kF32, {2})); }),
            "[not] operand 0 is f32[2] but the op takes an integer type or pred");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              ShiftLeft(Input(g, DType::kPred, {2}), Input(g, DType::kPred, {2}));
            }),
            "[shift_left] operand 0 is pred[2] but the op takes an integer type");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              const Value x = Input(g, DType::kF32, {2});
              Compare(x, x, "==");
            }),
            "[compare] direction \"==\" is none of EQ, NE, LT, LE, GT, GE");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              const Value x = Input(g, DType::kF32, {2, 3});
              Select(Input(g, DType::kPred, {3}), x, x);
            }),
            "[select] pred is pred[3] but the values are f32[2,3]: pred is a scalar or has their "
            "shape");
  EXPECT_EQ(ErrorOf([](Graph& g) { Clamp(Input(g, DType::kF32, {2}), 1, 0); }),
            "[clamp] low 1 is not at most high 0 for f32[2]");
}

TEST(Elementwise, ResultTypes) {
  Graph g;
  const Value x = Input(g, DType::kBF16, {2, 3});
  EXPECT_EQ(Add(x, 1.0).type(), TensorType(DType::kBF16, {2, 3}));
  EXPECT_EQ(Less(x, 0.0).type(), TensorType(DType::kPred, {2, 3}));
  EXPECT_EQ(IsFinite(x).type(), TensorType(DType::kPred, {2, 3}));
  EXPECT_EQ(Select(Input(g, DType::kPred, {}), x, x).type(), x.type());
}

TEST(Elementwise, ScalarPredicateIsAFactorLessOperand) {
  Graph g;
  const Value x = Input(g, DType::kF32, {2, 3});
  const Value y = Select(Input(g, DType::kPred, {}), x, x);
  const ShardingRule rule = DefOf(*y.node).Sharding(*y.node);
  EXPECT_EQ(rule.kind, ShardingRule::Kind::kFactors);
  EXPECT_EQ(rule.operands, (std::vector<std::string>{"", "ab", "ab"}));
  EXPECT_EQ(rule.results, (std::vector<std::string>{"ab"}));
}

}  // namespace
}  // namespace mw::ops
