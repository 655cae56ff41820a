#include "meshwright/autodiff/gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/take_rows.h"

namespace mw::autodiff {
namespace {

using graph::Graph;
using graph::Value;

constexpr int64_t kVocab = 5, kWidth = 3, kTokens = 4, kChunks = 2;

HostTensor Table(DType dtype, float offset) {
  std::vector<float> values;
  for (int64_t i = 0; i < kVocab * kWidth; ++i) {
    values.push_back(offset + 0.25f * static_cast<float>(i % 7));
  }
  return HostTensor::From<float>(DType::kF32, {kVocab, kWidth}, values).ConvertTo(dtype);
}

// A tied table: rows of it are looked up, a loop over chunks of them multiplies each with all
// of it, and `more_uses` stand outside.
void BuildTied(Graph& forward, DType dtype, bool more_uses) {
  const Value table = forward.AddParameter(TensorType(dtype, {kVocab, kWidth}), "table");
  const Value ids =
      ops::Constant(forward, DType::kS32, {kChunks, kTokens}, {2, 0, 2, 2, 4, 1, 0, 2});
  const Value x = ops::TakeRows(table, ids);
  const ops::ScanResult loop =
      ops::Scan({ops::Full(forward, DType::kF32, {}, 0)}, {x}, kChunks,
                [&](Graph&, const std::vector<Value>& carry, const std::vector<Value>& chunk) {
                  const Value logits = ops::Einsum("td,vd->tv", chunk[0], table);
                  const Value sum =
                      ops::ReduceSum(ops::Convert(ops::Mul(logits, logits), DType::kF32), {0, 1});
                  return ops::ScanBodyResult{{ops::Add(carry[0], sum)}, {}};
                });
  Value loss = loop.carry[0];
  if (more_uses) {
    loss = ops::Add(loss, ops::ReduceSum(ops::Convert(table, DType::kF32), {0, 1}));
  }
  forward.SetOutputs({loss});
}

struct Built {
  HostTensor gradient = HostTensor::Empty(DType::kF32, {kVocab, kWidth});
  int adds = 0;   // of whole tables
  int fills = 0;  // of whole tables
  // What the loop's sum of the table's gradient is kept in.
  DType loop_dtype = DType::kPred;
};

Built Gradient(Accumulate accumulate, DType dtype, bool more_uses, bool accumulator) {
  Graph forward, graph;
  BuildTied(forward, dtype, more_uses);
  const Value argument = graph.AddParameter(TensorType(dtype, {kVocab, kWidth}), "table");
  std::vector<HostTensor> feed = {Table(dtype, -0.5f)};
  std::vector<Value> accumulators;
  if (accumulator) {
    accumulators.push_back(
        graph.AddParameter(TensorType(DType::kF32, {kVocab, kWidth}), "accumulator"));
    feed.push_back(Table(DType::kF32, 10.0f));
  }
  graph.SetOutputs(
      BuildGradient(graph, forward, {argument}, {0}, 0, accumulators, accumulate).gradients);
  graph.Verify();
  Built built;
  for (const auto& node : graph.nodes()) {
    for (int r = 0; node->op_name() == "scan" && r < node->num_results(); ++r) {
      if (node->types()[r].dims == Dims{kVocab, kWidth}) built.loop_dtype = node->types()[r].dtype;
    }
    if (node->is_parameter() || node->types()[0].dims != Dims{kVocab, kWidth}) continue;
    built.adds += node->op_name() == "add" ? 1 : 0;
    built.fills += node->op_name() == "constant" ? 1 : 0;
  }
  auto out = RunGraph(graph, feed);
  EXPECT_TRUE(out.ok()) << out.status();
  if (out.ok()) built.gradient = (*out)[0].ConvertTo(DType::kF32);
  return built;
}

// One case of a type, of what uses there are and of whether there is an accumulator.
TEST(GradientTest, EachUseAddsToTheAccumulatorWhatOneSumWould) {
  for (const bool more_uses : {false, true}) {
    for (const bool accumulator : {false, true}) {
      const Built whole = Gradient(Accumulate::kWhole, DType::kF32, more_uses, accumulator);
      const Built each = Gradient(Accumulate::kEachUse, DType::kF32, more_uses, accumulator);
      for (int64_t i = 0; i < kVocab * kWidth; ++i) {
        const float expected = whole.gradient.as<float>()[i];
        EXPECT_NEAR(each.gradient.as<float>()[i], expected, 1e-6 * (1 + std::abs(expected)))
            << "more uses " << more_uses << ", accumulator " << accumulator << ", element " << i;
      }
    }
  }
}

TEST(GradientTest, ATiedTableNeedsNoSecondTensorOfItsSize) {
  const Built whole = Gradient(Accumulate::kWhole, DType::kF32, false, true);
  EXPECT_EQ(whole.fills, 2);  // where the loop and the rows start from
  EXPECT_EQ(whole.adds, 2);
  const Built each = Gradient(Accumulate::kEachUse, DType::kF32, false, true);
  EXPECT_EQ(each.fills, 0);
  EXPECT_EQ(each.adds, 0);
  const Built fresh = Gradient(Accumulate::kEachUse, DType::kF32, false, false);
  EXPECT_EQ(fresh.fills, 1);  // where the loop starts; the rows are added to what it leaves
  EXPECT_EQ(fresh.adds, 0);
}

// A loop over bfloat16 weights sums in the accumulator's float32, where a sum of its own would
// be rounded at every step.
TEST(GradientTest, LoopsSumInTheTypeOfTheAccumulator) {
  const Built each = Gradient(Accumulate::kEachUse, DType::kBF16, false, true);
  EXPECT_EQ(each.loop_dtype, DType::kF32);
  const Built exact = Gradient(Accumulate::kWhole, DType::kF32, false, true);
  for (int64_t i = 0; i < kVocab * kWidth; ++i) {
    const float expected = exact.gradient.as<float>()[i];
    // Products of bfloat16, each within 2^-8.
    EXPECT_NEAR(each.gradient.as<float>()[i], expected, 0.01 * std::abs(expected)) << i;
  }
  EXPECT_EQ(Gradient(Accumulate::kWhole, DType::kBF16, false, true).loop_dtype, DType::kBF16);
}

}  // namespace
}  // namespace mw::autodiff
