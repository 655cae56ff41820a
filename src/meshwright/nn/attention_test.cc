#include "meshwright/nn/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/compile/lower.h"
#include "meshwright/core/graph_error.h"
#include "meshwright/graph_testing/case_inputs.h"
#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce.h"

namespace mw::nn {
namespace {

using graph::Graph;
using graph::Value;
using ::testing::HasSubstr;

constexpr int64_t kRows = 2, kTokens = 9, kHeads = 6, kKvHeads = 2, kHeadDim = 4;

std::vector<TensorType> Types() {
  const TensorType key(DType::kF32, {kRows, kTokens, kKvHeads, kHeadDim});
  const TensorType query(DType::kF32, {kRows, kTokens, kHeads, kHeadDim});
  return {query, key, key, TensorType(DType::kS32, {kRows, kTokens}), query};
}

std::vector<Value> AddOperands(Graph& graph) {
  std::vector<Value> values;
  for (const TensorType& type : Types()) values.push_back(graph.AddParameter(type, "x"));
  return values;
}

// The result and the gradients by q, k and v of its product with the last operand.
std::vector<HostTensor> RunAttention(bool flash) {
  Graph forward, graph;
  const std::vector<Value> v = AddOperands(forward);
  const Value out = flash ? FlashAttention(v[0], v[1], v[2], v[3], {}, "attn_out")
                          : Attention(v[0], v[1], v[2], CausalSegmentMask(v[3]), {});
  forward.SetOutputs({ops::ReduceSum(ops::Mul(out, v[4]), {0, 1, 2, 3}), out});
  auto result = autodiff::BuildGradient(graph, forward, AddOperands(graph), {0, 1, 2});
  result.gradients.push_back(result.outputs[1]);
  graph.SetOutputs(result.gradients);
  std::vector<HostTensor> inputs;
  for (const TensorType& type : Types()) {
    inputs.push_back(RandomTensor(type, -2, 2, "attention", static_cast<int>(inputs.size())));
  }
  auto outputs = EvaluateGraph(graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *std::move(outputs) : std::vector<HostTensor>();
}

TEST(FlashAttentionTest, IsAttentionOfPackedRows) {
  const std::vector<HostTensor> plain = RunAttention(false);
  const std::vector<HostTensor> flash = RunAttention(true);
  ASSERT_EQ(plain.size(), 4u);
  ASSERT_EQ(flash.size(), 4u);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(Differences(flash[i], plain[i]), "") << i;
}

// The gradient of one row of `tokens` tokens, lowered for a TPU.
std::string TpuText(int64_t tokens, bool declare_costs = true) {
  Graph forward, graph;
  const auto operands = [&](Graph& g) {
    const TensorType key(DType::kBF16, {1, tokens, 1, 128});
    const TensorType query(DType::kBF16, {1, tokens, 2, 128});
    return std::vector<Value>{g.AddParameter(query, "q"), g.AddParameter(key, "k"),
                              g.AddParameter(key, "v"),
                              g.AddParameter(TensorType(DType::kS32, {1, tokens}), "segments")};
  };
  const std::vector<Value> v = operands(forward);
  const Value out = FlashAttention(v[0], v[1], v[2], v[3], {}, "attn_out");
  forward.SetOutputs({ops::ReduceSum(out, {0, 1, 2, 3})});
  graph.SetOutputs(autodiff::BuildGradient(graph, forward, operands(graph), {0, 1, 2}).gradients);
  return compile::LowerToStableHlo(graph, "attention", 1,
                                   {.platform = "tpu", .declare_kernel_costs = declare_costs});
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(FlashAttentionTest, OnTpusIsKernels) {
  const std::string text = TpuText(1024);
  EXPECT_EQ(Count(text, "loc(\"flash_attention_forward\")"), 1);
  EXPECT_EQ(Count(text, "loc(\"flash_attention_grad\")"), 1);
  EXPECT_EQ(Count(text, "tpu_custom_call"), 2);
  EXPECT_EQ(Count(text, "cost_estimate"), 2);
  EXPECT_EQ(Count(TpuText(1024, false), "cost_estimate"), 0);
  // The gradient of so many queries does not fit VMEM.
  const std::string long_rows = TpuText(65536);
  EXPECT_EQ(Count(long_rows, "loc(\"flash_attention_grad_q\")"), 1);
  EXPECT_EQ(Count(long_rows, "loc(\"flash_attention_grad_kv\")"), 1);
  EXPECT_EQ(Count(long_rows, "tpu_custom_call"), 3);
}

TEST(FlashAttentionTest, SizesWithoutAKernelAreRefusedForTpus) {
  try {
    TpuText(100);
    FAIL() << "was not refused";
  } catch (const GraphError& error) {
    EXPECT_THAT(error.what(), HasSubstr("there is no TPU kernel for it: rows have 100 tokens; "
                                        "multiples of 128 have a kernel, such as 128"));
  }
}

TEST(FlashAttentionTest, RefusesHeadsThatDoNotGroup) {
  Graph graph;
  const Value q = graph.AddParameter(TensorType(DType::kF32, {1, 4, 3, 2}), "q");
  const Value k = graph.AddParameter(TensorType(DType::kF32, {1, 4, 2, 2}), "k");
  const Value segments = graph.AddParameter(TensorType(DType::kS32, {1, 4}), "segments");
  try {
    FlashAttention(q, k, k, segments, {}, "");
    FAIL() << "was not refused";
  } catch (const GraphError& error) {
    EXPECT_THAT(error.what(), HasSubstr("with N a multiple of K"));
  }
}

}  // namespace
}  // namespace mw::nn
