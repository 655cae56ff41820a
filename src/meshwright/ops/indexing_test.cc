// Values that random inputs do not reach: ties, zeros, NaN and ids out of range.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/ops/argmax.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/scatter_add_rows.h"
#include "meshwright/ops/sort.h"
#include "meshwright/ops/take_rows.h"
#include "meshwright/ops/top_k.h"

namespace mw::ops {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Function = std::function<Value(Value)>;

HostTensor Run(const Graph& graph, const std::vector<float>& x, const std::string& plugin) {
  const auto outputs =
      RunGraph(graph, {HostTensor::From<float>(DType::kF32, {static_cast<int64_t>(x.size())}, x)},
               {.plugin = plugin});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? (*outputs)[0] : HostTensor();
}

TensorType Vector(const std::vector<float>& x) {
  return TensorType(DType::kF32, {static_cast<int64_t>(x.size())});
}

template <typename T>
std::vector<T> Evaluate(const Function& f, const std::vector<float>& x, const std::string& plugin) {
  Graph graph;
  graph.SetOutputs({f(graph.AddParameter(Vector(x), "x"))});
  const HostTensor y = Run(graph, x, plugin);
  return std::vector<T>(y.as<T>().begin(), y.as<T>().end());
}

// The gradient of a scalar function.
std::vector<float> GradientOf(const Function& f, const std::vector<float>& x) {
  Graph forward;
  forward.SetOutputs({f(forward.AddParameter(Vector(x), "x"))});
  Graph graph;
  const Value argument = graph.AddParameter(Vector(x), "x");
  graph.SetOutputs(autodiff::BuildGradient(graph, forward, {argument}, {0}).gradients);
  const HostTensor y = Run(graph, x, "cpu");
  return std::vector<float>(y.as<float>().begin(), y.as<float>().end());
}

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

TEST(IndexingTest, MaxSplitsItsGradientAmongTies) {
  const Function max = [](Value x) { return ReduceMax(x, {0}); };
  EXPECT_EQ(GradientOf(max, {3, 1, 3, 2}), (Floats{0.5, 0, 0.5, 0}));
  const Function min = [](Value x) { return ReduceMin(x, {0}); };
  EXPECT_EQ(GradientOf(min, {2, 2, 2, 2}), (Floats{0.25, 0.25, 0.25, 0.25}));
}

TEST(IndexingTest, ProductHasExactGradientsAtZeros) {
  const Function product = [](Value x) { return ReduceProd(x, {0}); };
  EXPECT_EQ(GradientOf(product, {2, 3, 4}), (Floats{12, 8, 6}));
  EXPECT_EQ(GradientOf(product, {2, 0, 4}), (Floats{0, 8, 0}));
  EXPECT_EQ(GradientOf(product, {0, 3, 0}), (Floats{0, 0, 0}));
}

// No zeros of the table's size, no second one to add: the gradient is a scatter into the
// accumulator, whose dtype it takes.
TEST(IndexingTest, TakeRowsAddsIntoTheAccumulatorInPlace) {
  Graph forward;
  const Value table = forward.AddParameter(TensorType(DType::kBF16, {3, 2}), "table");
  const Value ids = Constant(forward, DType::kS32, {4}, {2, 0, 2, 2});
  forward.SetOutputs({Convert(ReduceSum(TakeRows(table, ids), {0, 1}), DType::kF32)});
  Graph graph;
  const Value argument = graph.AddParameter(table.type(), "table");
  const Value accumulator = graph.AddParameter(TensorType(DType::kF32, {3, 2}), "accumulator");
  const Value sum =
      autodiff::BuildGradient(graph, forward, {argument}, {0}, 0, {accumulator}).gradients[0];
  EXPECT_EQ(sum.node->op_name(), "scatter_add_rows");
  EXPECT_EQ(sum.node->operand(0), accumulator);
  graph.SetOutputs({sum});
  const auto out = RunGraph(
      graph, {HostTensor::Zeros(DType::kBF16, {3, 2}),
              HostTensor::From<float>(DType::kF32, {3, 2}, Floats{10, 20, 30, 40, 50, 60.25})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(Floats((*out)[0].as<float>().begin(), (*out)[0].as<float>().end()),
            (Floats{11, 21, 30, 40, 53, 63.25}));
}

TEST(IndexingTest, ArgMaxTakesTheFirst) {
  const Function argmax = [](Value x) { return ArgMax(x, 0); };
  for (const char* plugin : {"cpu", "cpu-xla"}) {
    EXPECT_EQ(Evaluate<int32_t>(argmax, {1, 5, 5, 2}, plugin), (Ints{1}));
    EXPECT_EQ(Evaluate<int32_t>(argmax, {-kInf, -kInf}, plugin), (Ints{0}));
    EXPECT_EQ(Evaluate<int32_t>(argmax, {1, kNan, 7, kNan}, plugin), (Ints{1}));
    EXPECT_EQ(Evaluate<int32_t>(argmax, {1, kInf, kNan}, plugin), (Ints{1}));
  }
}

TEST(IndexingTest, SortIsTotalAndStable) {
  const Function order = [](Value x) { return ArgSort(x, 0); };
  const Function descending = [](Value x) { return ArgSort(x, 0, /*descending=*/true); };
  const Function top = [](Value x) { return TopK(x, 3).indices; };
  for (const char* plugin : {"cpu", "cpu-xla"}) {
    EXPECT_EQ(Evaluate<int32_t>(order, {kNan, 2, -kInf, 2, 0.0f, -0.0f, kInf}, plugin),
              (Ints{2, 5, 4, 1, 3, 6, 0}));
    EXPECT_EQ(Evaluate<int32_t>(descending, {1, 2, 2, 1}, plugin), (Ints{1, 2, 0, 3}));
    EXPECT_EQ(Evaluate<int32_t>(top, {1, 2, 0, 2, 2}, plugin), (Ints{1, 3, 4}));
  }
}

TEST(IndexingTest, GradientOfALookupCountsRepeatedAndClampedIds) {
  const Function sum = [](Value x) {
    const Value ids = Constant(x.graph(), DType::kS32, {5}, {0, 2, 2, -7, 9});
    return ReduceSum(TakeRows(x, ids), {0});
  };
  EXPECT_EQ(GradientOf(sum, {1, 1, 1, 1}), (Floats{2, 0, 2, 1}));
}

TEST(IndexingTest, ScatterDropsOrClamps) {
  auto scatter = [](OutOfRange out_of_range) {
    return [out_of_range](Value x) {
      const Value ids = Constant(x.graph(), DType::kS32, {4}, {-1, 1, 1, 3});
      const Value updates = Constant(x.graph(), DType::kF32, {4}, {10, 20, 30, 40});
      return ScatterAddRows(x, ids, updates, out_of_range);
    };
  };
  for (const char* plugin : {"cpu", "cpu-xla"}) {
    EXPECT_EQ(Evaluate<float>(scatter(OutOfRange::kDrop), {1, 2, 3}, plugin), (Floats{1, 52, 3}));
    EXPECT_EQ(Evaluate<float>(scatter(OutOfRange::kClamp), {1, 2, 3}, plugin),
              (Floats{11, 52, 43}));
  }
}

}  // namespace
}  // namespace mw::ops
