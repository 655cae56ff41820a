// Sampling with weights of int8: it is sampling with the numbers that they stand for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/models/int8_weights.h"
#include "meshwright/models/registry.h"
#include "meshwright/train/sampler.h"
#include "meshwright/train/test_cache.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

models::ModelConfig SmallConfig(bool tied, int64_t mlp_size = 96) {
  models::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 131;
  config.hidden_size = 64;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.mlp_size = mlp_size;
  config.tie_word_embeddings = tied;
  config.max_position = 256;
  return config;
}

std::vector<HostTensor> RandomWeights(const std::vector<nn::ParamSpec>& specs) {
  std::mt19937 random(3);
  std::vector<HostTensor> weights;
  for (const nn::ParamSpec& spec : specs) {
    HostTensor& weight = weights.emplace_back(HostTensor::Empty(DType::kF32, spec.dims));
    std::normal_distribution<float> normal(spec.decay ? 0 : 1, spec.decay ? 0.3F : 0.1F);
    for (float& x : weight.mutable_as<float>()) x = normal(random);
  }
  // A block of zeros has no scale.
  std::fill_n(weights[2].mutable_as<float>().begin(), 32, 0.0F);
  return weights;
}

// By the definition: of 32 numbers of a row, the multiples of their largest size / 127 that are
// nearest.
HostTensor Rounded(const HostTensor& weight) {
  HostTensor rounded = HostTensor::From<float>(DType::kF32, weight.dims(), weight.as<float>());
  const auto numbers = rounded.mutable_as<float>();
  for (size_t block = 0; block < numbers.size(); block += 32) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(numbers[block + i]));
    const float scale = largest * static_cast<float>(1.0 / 127);
    if (scale == 0) continue;
    for (size_t i = 0; i < 32; ++i) {
      float& x = numbers[block + i];
      x = std::floor(x / scale + 0.5F) * scale;
    }
  }
  return rounded;
}

std::vector<HostTensor> Rounded(const std::vector<nn::ParamSpec>& specs,
                                const std::vector<HostTensor>& weights) {
  std::vector<HostTensor> rounded;
  for (size_t i = 0; i < specs.size(); ++i) {
    rounded.push_back(models::BecomesInt8(specs[i]) ? Rounded(weights[i]) : weights[i]);
  }
  return rounded;
}

class SamplerInt8Test : public ::testing::Test {
 protected:
  std::vector<Sample> Generate(const models::Model& model, const models::ModelOptions& options,
                               const std::vector<HostTensor>& weights, int64_t num_samples) {
    SamplerOptions sampler_options;
    sampler_options.model = options;
    const auto sampler = Sampler::Create(client_, SharedTestCache(), &model, sampler_options);
    EXPECT_TRUE(sampler.ok()) << sampler.status();
    if (!sampler.ok()) return {};
    const auto params = *UploadParams(*client_, weights);
    SamplingOptions sampling;
    sampling.max_new_tokens = 12;
    sampling.num_samples = num_samples;
    sampling.seed = 5;
    std::vector<int32_t> prompt;
    prompt.reserve(40);
    for (int32_t i = 0; i < 40; ++i) prompt.push_back(i * 7 % 131);
    const auto samples = (*sampler)->Generate(params, {prompt, {3, 1, 4, 1, 5}}, sampling);
    EXPECT_TRUE(samples.ok()) << samples.status();
    return samples.ok() ? *samples : std::vector<Sample>();
  }

  // Largest difference of log-probs of samples; infinite where tokens differ.
  static double Difference(const std::vector<Sample>& a, const std::vector<Sample>& b) {
    double worst = a.empty() || a.size() != b.size() ? INFINITY : 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (a[i].tokens != b[i].tokens) return INFINITY;
      for (size_t t = 0; t < a[i].log_probs.size(); ++t) {
        worst = std::max<double>(worst, std::abs(a[i].log_probs[t] - b[i].log_probs[t]));
      }
    }
    return worst;
  }

  std::shared_ptr<runtime::Client> client_ = *TestClient("cpu");
};

TEST_F(SamplerInt8Test, IsSamplingWithTheRoundedWeights) {
  struct Case {
    bool tied, scan_layers, kernels;
    int64_t num_samples;
  };
  for (const Case& c : {Case{true, true, true, 1}, Case{false, false, true, 20},
                        Case{true, false, false, 1}, Case{false, true, false, 1}}) {
    SCOPED_TRACE(::testing::Message() << c.tied << c.scan_layers << c.kernels);
    const auto model = *models::CreateModel(SmallConfig(c.tied));
    models::ModelOptions options;
    options.scan_layers = c.scan_layers;
    options.kernels = c.kernels;
    const std::vector<nn::ParamSpec> specs = model->Params(options);
    const std::vector<HostTensor> weights = RandomWeights(specs);
    const auto expected = Generate(*model, options, Rounded(specs, weights), c.num_samples);
    // Negative control.
    const auto exact = Generate(*model, options, weights, c.num_samples);
    EXPECT_GT(Difference(exact, expected), 1e-3);
    options.int8_weights = true;
    EXPECT_LE(Difference(Generate(*model, options, weights, c.num_samples), expected), 2e-5);
  }
}

TEST_F(SamplerInt8Test, AdaptersStayFloats) {
  const auto model = *models::CreateModel(SmallConfig(true));
  models::ModelOptions options;
  options.lora.rank = 4;
  const std::vector<nn::ParamSpec> specs = model->Params(options);
  const std::vector<HostTensor> weights = RandomWeights(specs);
  const auto expected = Generate(*model, options, Rounded(specs, weights), 2);
  options.int8_weights = true;
  EXPECT_LE(Difference(Generate(*model, options, weights, 2), expected), 1e-4);
}

TEST_F(SamplerInt8Test, RefusesRowsThatAreNoWholeBlocks) {
  const auto model = *models::CreateModel(SmallConfig(true, /*mlp_size=*/48));
  SamplerOptions options;
  options.model.int8_weights = true;
  const auto sampler = Sampler::Create(client_, nullptr, model.get(), options);
  EXPECT_EQ(sampler.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sampler.status().message()),
              HasSubstr("layers.mlp.down_proj.weight has rows of 48 numbers; weights of int8 have "
                        "rows in blocks of 32"));
}

// What is not finite is told, as with floats.
TEST_F(SamplerInt8Test, WeightsThatAreNotFiniteAreTold) {
  const auto model = *models::CreateModel(SmallConfig(true));
  SamplerOptions options;
  options.model.int8_weights = true;
  const auto sampler = *Sampler::Create(client_, nullptr, model.get(), options);
  models::ModelOptions floats;
  for (const float odd : {NAN, INFINITY}) {
    std::vector<HostTensor> weights = RandomWeights(model->Params(floats));
    weights.back().mutable_as<float>()[3] = odd;
    weights[2].mutable_as<float>()[70] = odd;
    const auto samples =
        sampler->Generate(*UploadParams(*client_, weights), {{1, 2, 3}}, SamplingOptions());
    EXPECT_THAT(std::string(samples.status().message()), HasSubstr("are not finite")) << odd;
  }
}

}  // namespace
}  // namespace mw::train
