#include "meshwright/models/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/nn/lora.h"

namespace mw::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LoraOptions Options(int64_t rank, double alpha, const std::string& targets, bool rslora = false) {
  return {.rank = rank, .alpha = alpha, .target_modules = targets, .use_rslora = rslora};
}

TEST(LoraTest, ScaleIsAlphaOverTheRankOrItsRoot) {
  EXPECT_EQ(Options(8, 16, "all-linear").scale(), 2);
  EXPECT_EQ(Options(16, 16, "all-linear", true).scale(), 4);
  EXPECT_EQ(Options(16, 16, "all-linear").scale(), 1);
}

// A, B and the input are all ones: 16 / 8 of a sum of 8 over the rank of sums of 4, and nothing of
// the weight, which is zeros. With alpha for the scale it would be 512.
TEST(LoraTest, AnAdapterOfOnesAddsScaleTimesRankTimesInputs) {
  graph::Graph g;
  nn::ParamMap params;
  std::vector<HostTensor> inputs;
  const auto add = [&](const std::string& name, const Dims& dims, float fill) {
    inputs.push_back(HostTensor::Empty(DType::kF32, dims));
    std::ranges::fill(inputs.back().mutable_as<float>(), fill);
    return g.AddParameter(TensorType(DType::kF32, dims), name);
  };
  params["down.weight"] = add("down.weight", {3, 4}, 0);
  params["down.lora_A.weight"] = add("down.lora_A.weight", {8, 4}, 1);
  params["down.lora_B.weight"] = add("down.lora_B.weight", {3, 8}, 1);
  const graph::Value x = add("x", {2, 4}, 1);
  ModelOptions options;
  options.lora = Options(8, 16, "all-linear");
  g.SetOutputs({nn::LoraLinear(params, "down", x, options.compute())});
  const auto out = EvaluateGraph(g, inputs);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT((*out)[0].as<float>(), ::testing::Each(64));
}

TEST(LoraTest, TargetsAreInTheModelsOrder) {
  EXPECT_THAT(Options(1, 1, "v_proj, q_proj").Targets(), ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(Options(1, 1, "all-linear").Targets(), LoraModules());
  EXPECT_TRUE(Options(1, 1, "v_proj,q_proj").SameAs(Options(1, 1, "q_proj,v_proj")));
  EXPECT_TRUE(Options(0, 1, "q_proj").SameAs(Options(0, 2, "v_proj")));
  EXPECT_FALSE(Options(1, 1, "v_proj").SameAs(Options(1, 1, "q_proj")));
  EXPECT_FALSE(Options(1, 1, "v_proj").SameAs(Options(1, 1, "v_proj", true)));
  EXPECT_FALSE(Options(1, 1, "v_proj").SameAs(Options(1, 2, "v_proj")));
}

TEST(LoraTest, ErrorsNameTheKey) {
  const auto error = [](const LoraOptions& options) {
    return std::string(options.Validate().message());
  };
  EXPECT_THAT(error(Options(8, 16, "q_proj,down_proj")), IsEmpty());
  EXPECT_THAT(error(Options(-1, 16, "all-linear")), HasSubstr("lora.rank must be 0"));
  for (const double alpha : {0.0, -1.0, std::nan(""), 1e39}) {
    EXPECT_THAT(error(Options(8, alpha, "all-linear")), HasSubstr("lora.alpha"));
  }
  EXPECT_THAT(error(Options(8, 16, "q_proj,qate_proj")), HasSubstr("the nearest is \"gate_proj\""));
  EXPECT_THAT(error(Options(8, 16, "q_proj,")), HasSubstr("unknown module \"\""));
  EXPECT_THAT(error(Options(8, 16, "q_proj,q_proj")), HasSubstr("names q_proj twice"));
  EXPECT_EQ(Options(8, 16, "lm_head").Validate().code(), absl::StatusCode::kNotFound);
}

TEST(LoraTest, AdaptersFollowTheirWeightsAndAloneAreTrained) {
  const auto model = CreateModel(*LoadPreset("tiny-qwen3"));
  ASSERT_TRUE(model.ok()) << model.status();
  ModelOptions options;
  options.lora = Options(4, 16, "q_proj,down_proj");
  const ModelConfig& c = (*model)->config();
  for (const bool scan_layers : {true, false}) {
    options.scan_layers = scan_layers;
    std::map<std::string, nn::ParamSpec> specs;
    size_t trainable = 0;
    for (const nn::ParamSpec& spec : (*model)->Params(options)) {
      EXPECT_EQ(spec.trainable, spec.adapter) << spec.name;
      EXPECT_EQ(spec.adapter, spec.name.find(".lora_") != std::string::npos) << spec.name;
      trainable += spec.trainable ? 1 : 0;
      specs[spec.name] = spec;
    }
    const size_t copies = scan_layers ? 1 : static_cast<size_t>(c.num_layers);
    EXPECT_EQ(trainable, 4 * copies);
    const std::string layer = scan_layers ? "layers." : "layers.1.";
    const auto with_layers = [&](Dims dims) {
      if (scan_layers) dims.insert(dims.begin(), c.num_layers);
      return dims;
    };
    const nn::ParamSpec& a = specs.at(layer + "mlp.down_proj.lora_A.weight");
    const nn::ParamSpec& b = specs.at(layer + "mlp.down_proj.lora_B.weight");
    EXPECT_EQ(a.dims, with_layers({4, c.mlp_size}));
    EXPECT_EQ(b.dims, with_layers({c.hidden_size, 4}));
    EXPECT_EQ(a.axes.back(), "mlp");
    EXPECT_EQ(a.axes[a.axes.size() - 2], "lora_rank");
    EXPECT_EQ(b.axes.back(), "lora_rank");
    EXPECT_EQ(b.axes[b.axes.size() - 2], "embed");
    EXPECT_EQ(a.init, nn::Init::Uniform(1 / std::sqrt(static_cast<double>(c.mlp_size))));
    EXPECT_EQ(b.init, nn::Init::Zeros());
    EXPECT_TRUE(a.decay && b.decay);
    EXPECT_EQ(a.hf_names[scan_layers ? 1 : 0],
              "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight");
    EXPECT_FALSE(specs.contains(layer + "self_attn.v_proj.lora_A.weight"));
  }
}

}  // namespace
}  // namespace mw::models
