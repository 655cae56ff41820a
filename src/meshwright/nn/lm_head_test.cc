#include "meshwright/nn/lm_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/core/graph_error.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce.h"

namespace mw::nn {
namespace {

using graph::Graph;
using graph::Value;
using ::testing::HasSubstr;

constexpr int64_t kRows = 2, kTokens = 12, kWidth = 4, kVocab = 7;

std::vector<Value> AddOperands(Graph& graph) {
  return {graph.AddParameter(TensorType(DType::kF32, {kRows, kTokens, kWidth}), "x"),
          graph.AddParameter(TensorType(DType::kF32, {kVocab, kWidth}), "head"),
          graph.AddParameter(TensorType(DType::kS32, {kRows, kTokens}), "targets"),
          graph.AddParameter(TensorType(DType::kF32, {kRows, kTokens}), "mask")};
}

std::vector<HostTensor> Feed() {
  std::vector<float> x, head, mask;
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < kRows * kTokens * kWidth; ++i) x.push_back(std::sin(1.7f * i));
  for (int64_t i = 0; i < kVocab * kWidth; ++i) head.push_back(std::cos(0.9f * i));
  for (int32_t i = 0; i < kRows * kTokens; ++i) targets.push_back(i * 5 % kVocab);
  for (int32_t i = 0; i < kRows * kTokens; ++i) mask.push_back(i % 5 == 3 ? 0.0f : 1.0f);
  return {HostTensor::From<float>(DType::kF32, {kRows, kTokens, kWidth}, x),
          HostTensor::From<float>(DType::kF32, {kVocab, kWidth}, head),
          HostTensor::From<int32_t>(DType::kS32, {kRows, kTokens}, targets),
          HostTensor::From<float>(DType::kF32, {kRows, kTokens}, mask)};
}

// log_prob, log_sum_exp, entropy, and the gradients of a function of them by x and head.
std::vector<HostTensor> Evaluate(const HeadOptions& options) {
  Graph forward, graph;
  const std::vector<Value> v = AddOperands(forward);
  const TokenLogProbs tokens = ComputeTokenLogProbs(v[0], v[1], v[2], v[3], options);
  const Value sum = ops::Add(ops::Add(tokens.log_prob, tokens.log_sum_exp), *tokens.entropy);
  forward.SetOutputs(
      {ops::ReduceSum(sum, {0, 1}), tokens.log_prob, tokens.log_sum_exp, *tokens.entropy});
  auto result = autodiff::BuildGradient(graph, forward, AddOperands(graph), {0, 1});
  result.gradients.insert(result.gradients.end(), result.outputs.begin() + 1, result.outputs.end());
  graph.SetOutputs(result.gradients);
  auto out = RunGraph(graph, Feed());
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *out : std::vector<HostTensor>();
}

TEST(LmHeadTest, ChunksAndShardsOfTokensGiveTheSameNumbers) {
  HeadOptions options;
  options.entropy = true;
  const std::vector<HostTensor> whole = Evaluate(options);
  ASSERT_EQ(whole.size(), 5u);
  // {chunk_tokens, token_shards}: with and without tail, one token a chunk, none.
  for (const auto& [chunk, shards] : std::vector<std::pair<int64_t, int64_t>>{
           {8, 1}, {10, 1}, {1, 1}, {8, 2}, {16, 2}, {1, 3}, {12, 3}, {0, 4}}) {
    options.chunk_tokens = chunk;
    options.token_shards = shards;
    const std::vector<HostTensor> parts = Evaluate(options);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t k = 0; k < whole.size(); ++k) {
      ASSERT_EQ(parts[k].dims(), whole[k].dims());
      for (int64_t i = 0; i < whole[k].num_elements(); ++i) {
        // Sums of at most 24 terms of size one in another order.
        EXPECT_NEAR(parts[k].as<float>()[i], whole[k].as<float>()[i], 1e-5)
            << "chunk " << chunk << ", shards " << shards << ", output " << k << ", element " << i;
      }
    }
  }
}

// The operands of the loop over chunks, as text.
std::string ChunkTypes(int64_t chunk_tokens, int64_t token_shards) {
  Graph graph;
  const std::vector<Value> v = AddOperands(graph);
  HeadOptions options;
  options.chunk_tokens = chunk_tokens;
  options.token_shards = token_shards;
  ComputeTokenLogProbs(v[0], v[1], v[2], v[3], options);
  for (const auto& node : graph.nodes()) {
    if (node->op_name() == "scan") return node->operand(0).type().ToString();
  }
  return "no loop";
}

// Rows and shards stay apart, so that neither leaves its device.
TEST(LmHeadTest, AChunkTakesTokensOfEveryRowAndShard) {
  EXPECT_EQ(ChunkTypes(8, 1), TensorType(DType::kF32, {3, 2, 4, 4}).ToString());
  EXPECT_EQ(ChunkTypes(10, 1), TensorType(DType::kF32, {2, 2, 5, 4}).ToString());
  EXPECT_EQ(ChunkTypes(8, 2), TensorType(DType::kF32, {3, 2, 2, 2, 4}).ToString());
  EXPECT_EQ(ChunkTypes(1, 3), TensorType(DType::kF32, {4, 2, 3, 1, 4}).ToString());
  EXPECT_EQ(ChunkTypes(0, 3), "no loop");
  EXPECT_EQ(ChunkTypes(24, 1), "no loop");
}

// The gradients by x and head of a function of the log-probabilities of ids, those, and the
// likeliest tokens with theirs; ids 0 of each token is its target.
std::vector<HostTensor> EvaluateIds(HeadOptions options) {
  constexpr int64_t kIds = 3;
  const auto operands = [](Graph& graph) {
    std::vector<Value> v = AddOperands(graph);
    v.push_back(graph.AddParameter(TensorType(DType::kS32, {kRows, kTokens, kIds}), "ids"));
    v.push_back(graph.AddParameter(TensorType(DType::kF32, {kRows, kTokens, kIds}), "weights"));
    return v;
  };
  Graph forward, graph;
  const std::vector<Value> v = operands(forward);
  options.ids_BTK = v[4];
  options.top_k = kVocab;
  const TokenLogProbs tokens = ComputeTokenLogProbs(v[0], v[1], v[2], v[3], options);
  forward.SetOutputs({ops::ReduceSum(ops::Mul(*tokens.log_prob_of_ids, v[5]), {0, 1, 2}),
                      tokens.log_prob, *tokens.log_prob_of_ids, *tokens.top_ids,
                      *tokens.top_log_probs});
  auto result = autodiff::BuildGradient(graph, forward, operands(graph), {0, 1});
  result.gradients.insert(result.gradients.end(), result.outputs.begin() + 1, result.outputs.end());
  graph.SetOutputs(result.gradients);
  std::vector<HostTensor> feed = Feed();
  const auto targets = feed[2].as<int32_t>();
  const auto mask = feed[3].as<float>();
  std::vector<int32_t> ids;
  std::vector<float> weights;
  for (int32_t i = 0; i < kRows * kTokens * kIds; ++i) {
    const int32_t token = i / kIds;
    ids.push_back(mask[token] == 0 ? 999 : (targets[token] + i % kIds * 2) % kVocab);
    weights.push_back(std::sin(0.3f * i));
  }
  feed.push_back(HostTensor::From<int32_t>(DType::kS32, {kRows, kTokens, kIds}, ids));
  feed.push_back(HostTensor::From<float>(DType::kF32, {kRows, kTokens, kIds}, weights));
  auto out = RunGraph(graph, feed);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *out : std::vector<HostTensor>();
}

TEST(LmHeadTest, LogProbsOfIdsAndOfTheLikeliest) {
  HeadOptions options;
  options.temperature = 0.8;
  const std::vector<HostTensor> whole = EvaluateIds(options);
  ASSERT_EQ(whole.size(), 6u);
  const auto log_prob = whole[2].as<float>(), of_ids = whole[3].as<float>();
  const auto top_ids = whole[4].as<int32_t>();
  const auto top_log_probs = whole[5].as<float>();
  for (int64_t i = 0; i < kRows * kTokens; ++i) {
    const bool masked = i % 5 == 3;
    EXPECT_EQ(of_ids[i * 3] == 0, masked);
    EXPECT_FLOAT_EQ(of_ids[i * 3], log_prob[i]);
    // Here all of the vocabulary is among the likeliest.
    double sum = 0;
    int32_t seen = 0;
    for (int64_t k = 0; k < kVocab; ++k) {
      sum += std::exp(top_log_probs[i * kVocab + k]);
      seen |= 1 << top_ids[i * kVocab + k];
      EXPECT_LE(top_log_probs[i * kVocab + k],
                top_log_probs[i * kVocab + std::max<int64_t>(k, 1) - 1]);
      for (int64_t j = 0; j < 3 && !masked; ++j) {
        if (top_ids[i * kVocab + k] != (i * 5 % kVocab + (i * 3 + j) % 3 * 2) % kVocab) continue;
        EXPECT_FLOAT_EQ(top_log_probs[i * kVocab + k], of_ids[i * 3 + j]);
      }
    }
    if (masked) continue;
    EXPECT_NEAR(sum, 1, 1e-5);
    EXPECT_EQ(seen, (1 << kVocab) - 1);
  }
  for (const auto& [chunk, shards] :
       std::vector<std::pair<int64_t, int64_t>>{{8, 1}, {10, 1}, {8, 2}, {12, 3}, {0, 4}}) {
    options.chunk_tokens = chunk;
    options.token_shards = shards;
    const std::vector<HostTensor> parts = EvaluateIds(options);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t k = 0; k < whole.size(); ++k) {
      ASSERT_EQ(parts[k].dims(), whole[k].dims());
      for (int64_t i = 0; i < whole[k].num_elements(); ++i) {
        if (k == 4) {
          EXPECT_EQ(parts[k].as<int32_t>()[i], top_ids[i]);
        } else {
          EXPECT_NEAR(parts[k].as<float>()[i], whole[k].as<float>()[i], 1e-5)
              << "chunk " << chunk << ", shards " << shards << ", output " << k << ", element "
              << i;
        }
      }
    }
  }
}

TEST(LmHeadTest, RefusesWhatDoesNotFit) {
  const auto error_of = [](int64_t shards, bool flat) -> std::string {
    Graph graph;
    std::vector<Value> v = AddOperands(graph);
    if (flat) v[0] = graph.AddParameter(TensorType(DType::kF32, {24, kWidth}), "x");
    HeadOptions options;
    options.token_shards = shards;
    try {
      ComputeTokenLogProbs(v[0], v[1], v[2], v[3], options);
    } catch (const GraphError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of(3, false), "no error");
  EXPECT_THAT(error_of(5, false), HasSubstr("token_shards 5 must be positive and divide the 12"));
  EXPECT_THAT(error_of(0, false), HasSubstr("token_shards 0"));
  EXPECT_THAT(error_of(1, true), HasSubstr("[B,T,D]"));
}

}  // namespace
}  // namespace mw::nn
