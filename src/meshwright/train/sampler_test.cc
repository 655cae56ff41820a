#include "meshwright/train/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/models/hf_config.h"
#include "meshwright/models/registry.h"

namespace mw::train {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

SamplingOptions Options(int64_t max_new_tokens, double temperature, uint64_t seed) {
  SamplingOptions options;
  options.max_new_tokens = max_new_tokens;
  options.temperature = temperature;
  options.seed = seed;
  return options;
}

// A model of models/testdata on the device; `generated` is transformers' greedy continuation of
// `prompt` (tests/oracle/tiny_models.py).
class SamplerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string base =
        MW_SOURCE_DIR "/src/meshwright/models/testdata/" + std::string(GetParam());
    std::ifstream file(base + "/config.json");
    std::stringstream text;
    text << file.rdbuf();
    model_ = *models::CreateModel(*models::ModelConfigFromHfJson(text.str()));
    const auto weights = *io::SafetensorsFile::Open(base + "/model.safetensors");
    const auto reference = *io::SafetensorsFile::Open(base + "-reference.safetensors");
    prompt_ = Ids(*reference->Read("prompt"));
    generated_ = Ids(*reference->Read("generated"));
    std::vector<HostTensor> params;
    for (const nn::ParamSpec& spec : model_->Params({})) {
      HostTensor param = HostTensor::Empty(DType::kF32, spec.dims);
      auto at = param.mutable_as<float>().begin();
      for (const std::string& name : spec.hf_names) {
        const HostTensor part = *weights->Read(name);
        at = std::copy(part.as<float>().begin(), part.as<float>().end(), at);
      }
      params.push_back(std::move(param));
    }
    client_ = *TestClient("cpu");
    params_ = *UploadParams(*client_, std::move(params));
  }

  static std::vector<int32_t> Ids(const HostTensor& t) {
    return {t.as<int32_t>().begin(), t.as<int32_t>().end()};
  }
  std::unique_ptr<Sampler> Make(int64_t steps_per_call = 1) {
    SamplerOptions options;
    options.steps_per_call = steps_per_call;
    return *Sampler::Create(client_, nullptr, model_.get(), options);
  }
  std::vector<Sample> Run(Sampler& sampler, const std::vector<std::vector<int32_t>>& prompts,
                          const SamplingOptions& options) {
    auto samples = sampler.Generate(params_, prompts, options);
    EXPECT_TRUE(samples.ok()) << samples.status();
    return samples.ok() ? *samples : std::vector<Sample>();
  }

  std::shared_ptr<runtime::Client> client_;
  std::unique_ptr<models::Model> model_;
  std::vector<runtime::Buffer> params_;
  std::vector<int32_t> prompt_, generated_;
};

TEST_P(SamplerTest, GreedyIsTransformersGreedy) {
  for (const int64_t steps : {1, 3}) {
    const auto sampler = Make(steps);
    const auto samples = Run(*sampler, {prompt_}, Options(8, 0, 0));
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_THAT(samples[0].tokens, ElementsAreArray(generated_)) << steps;
    EXPECT_EQ(samples[0].finish_reason, FinishReason::kLength);
  }
}

TEST_P(SamplerTest, RaggedBatchIsEachPromptAlone) {
  std::vector<int32_t> longer = prompt_;
  longer.insert(longer.end(), generated_.begin(), generated_.begin() + 3);
  const auto sampler = Make();
  const SamplingOptions options = Options(5, 1, 7);
  const auto both = Run(*sampler, {prompt_, longer}, options);
  SamplingOptions second = options;
  second.first_sample_id = 1;
  const auto alone0 = Run(*sampler, {prompt_}, options);
  const auto alone1 = Run(*sampler, {longer}, second);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].tokens, alone0[0].tokens);
  EXPECT_EQ(both[1].tokens, alone1[0].tokens);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(both[1].log_probs[i], alone1[0].log_probs[i], 1e-5);
  }
}

TEST_P(SamplerTest, SeedsAndFilters) {
  const auto sampler = Make();
  const SamplingOptions plain = Options(8, 1, 3);
  const auto first = Run(*sampler, {prompt_}, plain);
  EXPECT_EQ(Run(*sampler, {prompt_}, plain)[0].tokens, first[0].tokens);
  SamplingOptions other = plain;
  other.seed = 4;
  EXPECT_NE(Run(*sampler, {prompt_}, other)[0].tokens, first[0].tokens);
  SamplingOptions keep_all = plain;
  keep_all.top_k = model_->config().vocab_size;
  keep_all.top_p = std::nextafter(1.0, 0.0);
  EXPECT_EQ(Run(*sampler, {prompt_}, keep_all)[0].tokens, first[0].tokens);
  SamplingOptions one = plain;
  one.top_k = 1;
  EXPECT_THAT(Run(*sampler, {prompt_}, one)[0].tokens, ElementsAreArray(generated_));
  one.top_k = 0;
  one.top_p = 1e-6;
  EXPECT_THAT(Run(*sampler, {prompt_}, one)[0].tokens, ElementsAreArray(generated_));
}

TEST_P(SamplerTest, StopsAtAStopIdAndRefusesBadPrompts) {
  const auto sampler = Make();
  SamplingOptions options = Options(8, 0, 0);
  options.stop_ids = {generated_[2]};
  const auto samples = Run(*sampler, {prompt_}, options);
  EXPECT_EQ(samples[0].tokens.back(), generated_[2]);
  EXPECT_LE(samples[0].tokens.size(), 3u);
  EXPECT_EQ(samples[0].finish_reason, FinishReason::kStop);

  EXPECT_EQ(sampler->Generate(params_, {{}}, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sampler->Generate(params_, {{131}}, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.max_new_tokens = sampler->max_length();
  EXPECT_THAT(std::string(sampler->Generate(params_, {prompt_}, options).status().message()),
              HasSubstr("exceed the context"));
}

INSTANTIATE_TEST_SUITE_P(TinyModels, SamplerTest, ::testing::Values("tiny-llama", "tiny-qwen3"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

}  // namespace
}  // namespace mw::train
