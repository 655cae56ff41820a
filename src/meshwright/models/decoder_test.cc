#include "meshwright/models/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/nn/lm_head.h"

namespace mw::models {
namespace {

using graph::Graph;
using graph::Value;
using ::testing::HasSubstr;

// Parameters of `model` in a fresh graph.
nn::ParamMap AddParams(Graph& graph, const Model& model, const ModelOptions& options) {
  nn::ParamMap params;
  for (const nn::ParamSpec& spec : model.Params(options)) {
    params[spec.name] = graph.AddParameter(TensorType(DType::kF32, spec.dims), spec.name);
  }
  return params;
}

Inputs AddInputs(Graph& graph, int64_t rows, int64_t tokens) {
  const TensorType type(DType::kS32, {rows, tokens});
  return {graph.AddParameter(type, "tokens"), graph.AddParameter(type, "positions"),
          graph.AddParameter(type, "segment_ids")};
}

std::unique_ptr<Graph> LossGraph(const ModelConfig& config, const ModelOptions& options) {
  auto graph = std::make_unique<Graph>();
  const auto model = *CreateModel(config);
  const nn::ParamMap params = AddParams(*graph, *model, options);
  const Inputs inputs = AddInputs(*graph, 2, 10);
  const Value targets = graph->AddParameter(TensorType(DType::kS32, {2, 10}), "targets");
  const Value mask = graph->AddParameter(TensorType(DType::kF32, {2, 10}), "mask");
  const Value hidden = model->Hidden(params, inputs, options);
  EXPECT_EQ(hidden.type(), TensorType(options.compute_dtype, {2, 10, config.hidden_size}));
  const nn::CrossEntropySums sums =
      nn::CrossEntropy(hidden, model->HeadWeight(params), targets, mask,
                       {.compute = options.compute(), .chunk_tokens = 8, .entropy = true});
  EXPECT_EQ(sums.nll.type(), TensorType(DType::kF32, {}));
  EXPECT_EQ(sums.tokens.log_prob.type(), TensorType(DType::kF32, {2, 10}));
  EXPECT_EQ(sums.tokens.entropy->type(), TensorType(DType::kF32, {2, 10}));
  graph->SetOutputs({sums.nll, sums.z_loss, *sums.tokens.entropy});
  graph->Verify();
  return graph;
}

TEST(DecoderTest, LossGraphsOfEveryOptionVerify) {
  for (const char* preset : {"tiny-llama", "tiny-qwen3"}) {
    for (const bool scan : {true, false}) {
      for (const char* policy : {"none", "full", "minimal", "save_dot_except_mlp", "names:q"}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          for (const char* attention : {"plain", "flash"}) {
            LossGraph(*LoadPreset(preset), {.scan_layers = scan,
                                            .remat_policy = policy,
                                            .compute_dtype = dtype,
                                            .attention = attention});
          }
        }
      }
    }
  }
}

// How often `op` is in `graph` and its regions.
int Count(const Graph& graph, std::string_view op) {
  int count = 0;
  for (const auto& node : graph.nodes()) {
    count += !node->is_parameter() && node->op_name() == op ? 1 : 0;
    for (const auto& region : node->regions()) count += Count(*region, op);
  }
  return count;
}

// What the backward pass reads of flash attention is kept or computed again by the name of its
// result, as everything else is.
TEST(DecoderTest, RematPoliciesKeepOrRecomputeFlashAttention) {
  const auto attentions = [](const char* policy) {
    const auto forward =
        LossGraph(*LoadPreset("tiny-llama"), {.remat_policy = policy, .attention = "flash"});
    Graph graph;
    std::vector<Value> arguments;
    for (const Value& v : forward->parameters()) {
      arguments.push_back(graph.AddParameter(v.type(), "x"));
    }
    graph.SetOutputs(autodiff::BuildGradient(graph, *forward, arguments, {1}).gradients);
    graph.Verify();
    EXPECT_EQ(Count(graph, "attention_grad"), 1) << policy;
    return Count(graph, "attention");
  };
  EXPECT_EQ(attentions("none"), 1);
  EXPECT_EQ(attentions("minimal"), 1);
  EXPECT_EQ(attentions("names:attn_out"), 1);
  EXPECT_EQ(attentions("full"), 2);
  EXPECT_EQ(attentions("names:q,k,v"), 2);
}

TEST(DecoderTest, ScannedProgramDoesNotGrowWithDepth) {
  ModelConfig config = *LoadPreset("tiny-llama");
  const auto nodes = [&](int64_t layers, bool scan) {
    config.num_layers = layers;
    return LossGraph(config, {.scan_layers = scan})->nodes().size();
  };
  EXPECT_EQ(nodes(2, true), nodes(12, true));
  EXPECT_GT(nodes(12, false), 3 * nodes(2, false));
}

TEST(DecoderTest, EveryNameThatAPolicyMayKeepIsMarked) {
  const auto graph =
      LossGraph(*LoadPreset("tiny-llama"), {.scan_layers = false, .remat_policy = "none"});
  const std::string text = graph->ToString();
  for (const char* name :
       {"q", "k", "v", "attn_out", "out_proj", "mlp_in", "mlp_gate", "mlp_up", "mlp_out"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\"") + name + "\""));
  }
}

TEST(DecoderTest, DecodeStepKeepsTheCacheType) {
  for (const bool scan : {true, false}) {
    const auto model = *CreateModel(*LoadPreset("tiny-qwen3"));
    Graph graph;
    const ModelOptions options{.scan_layers = scan};
    const nn::ParamMap params = AddParams(graph, *model, options);
    const TensorType cache = model->CacheType(2, 16, DType::kBF16);
    EXPECT_EQ(cache.dims, (Dims{3, 2, 16, 2, 12}));
    const TensorType rows(DType::kS32, {2});
    const DecodeResult result = model->DecodeStep(
        params,
        {graph.AddParameter(TensorType(DType::kS32, {2, 4}), "tokens"),
         graph.AddParameter(rows, "start"), graph.AddParameter(rows, "num_tokens")},
        {graph.AddParameter(cache, "k"), graph.AddParameter(cache, "v")}, options);
    EXPECT_EQ(result.logits.type(), TensorType(DType::kF32, {2, 131}));
    EXPECT_EQ(result.cache.k.type(), cache);
    EXPECT_EQ(result.cache.v.type(), cache);
    graph.SetOutputs({result.logits, result.cache.k, result.cache.v});
    graph.Verify();
  }
}

// The message of the GraphError that `build` throws.
template <typename F>
std::string ErrorOf(const F& build) {
  try {
    build();
  } catch (const GraphError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DecoderTest, MistakesAreGraphErrors) {
  const auto model = *CreateModel(*LoadPreset("tiny-llama"));
  const auto hidden = [&](const ModelOptions& options, int64_t tokens, const char* without) {
    Graph graph;
    nn::ParamMap params = AddParams(graph, *model, {.scan_layers = options.scan_layers});
    params.erase(without);
    Inputs inputs = AddInputs(graph, 2, 10);
    inputs.positions = graph.AddParameter(TensorType(DType::kS32, {2, tokens}), "p");
    model->Hidden(params, inputs, options);
  };
  EXPECT_EQ(ErrorOf([&] { hidden({}, 10, ""); }), "no error");
  EXPECT_THAT(ErrorOf([&] { hidden({.remat_policy = "some"}, 10, ""); }),
              HasSubstr("remat_policy \"some\""));
  EXPECT_THAT(ErrorOf([&] { hidden({.compute_dtype = DType::kF16}, 10, ""); }),
              HasSubstr("compute_dtype f16"));
  EXPECT_THAT(ErrorOf([&] { hidden({.matmul_precision = "high"}, 10, ""); }),
              HasSubstr("matmul_precision"));
  EXPECT_THAT(ErrorOf([&] { hidden({}, 9, ""); }), HasSubstr("[B,T]"));
  EXPECT_THAT(ErrorOf([&] { hidden({}, 10, "norm.weight"); }), HasSubstr("norm.weight"));
  ModelConfig config = model->config();
  config.family = "gpt2";
  EXPECT_THAT(std::string(CreateModel(config).status().message()), HasSubstr("llama, qwen3"));
  config = model->config();
  config.num_kv_heads = 3;
  EXPECT_FALSE(CreateModel(config).ok());
}

}  // namespace
}  // namespace mw::models
