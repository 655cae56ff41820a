#include "meshwright/train/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <span>

#include "meshwright/graph/graph.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/models/hf_config.h"
#include "meshwright/models/registry.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/iota.h"
#include "meshwright/train/model_files_for_test.h"

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

// A model of models/testdata on the device with samplers whose programs the tests share;
// `generated` is transformers' greedy continuation of `prompt` (tests/oracle/tiny_models.py).
struct Loaded {
  std::shared_ptr<runtime::Client> client;
  std::unique_ptr<models::Model> model;
  std::vector<HostTensor> host_params;
  std::vector<std::vector<runtime::Buffer>> params;  // of one device
  std::vector<int32_t> prompt, generated;
  std::map<int64_t, std::unique_ptr<Sampler>> samplers;  // by steps_per_call
};

std::vector<int32_t> Ids(const HostTensor& t) {
  return {t.as<int32_t>().begin(), t.as<int32_t>().end()};
}

std::unique_ptr<Loaded> Load(const std::string& name) {
  auto loaded = std::make_unique<Loaded>();
  const std::string base = TinyModel(name);
  loaded->model =
      *models::CreateModel(*models::ModelConfigFromHfJson(ReadText(base + "/config.json")));
  const auto weights = *io::SafetensorsFile::Open(base + "/model.safetensors");
  const auto reference = *io::SafetensorsFile::Open(base + "-reference.safetensors");
  loaded->prompt = Ids(*reference->Read("prompt"));
  loaded->generated = Ids(*reference->Read("generated"));
  for (const nn::ParamSpec& spec : loaded->model->Params({})) {
    HostTensor param = HostTensor::Empty(DType::kF32, spec.dims);
    auto at = param.mutable_as<float>().begin();
    for (const std::string& tensor : spec.hf_names) {
      const HostTensor part = *weights->Read(tensor);
      at = std::copy(part.as<float>().begin(), part.as<float>().end(), at);
    }
    loaded->host_params.push_back(std::move(param));
  }
  loaded->client = *TestClient("cpu");
  loaded->params = *UploadParams(*loaded->client, loaded->host_params);
  return loaded;
}

class SamplerTest : public ::testing::TestWithParam<const char*> {
 protected:
  static void TearDownTestSuite() { models_.clear(); }
  void SetUp() override {
    std::unique_ptr<Loaded>& loaded = models_[GetParam()];
    if (loaded == nullptr) loaded = Load(GetParam());
    loaded_ = loaded.get();
    prompt_ = loaded->prompt;
    generated_ = loaded->generated;
  }
  Sampler& Shared(int64_t steps_per_call = 1) {
    std::unique_ptr<Sampler>& sampler = loaded_->samplers[steps_per_call];
    if (sampler == nullptr) {
      SamplerOptions options;
      options.steps_per_call = steps_per_call;
      sampler = *Sampler::Create(loaded_->client, nullptr, loaded_->model.get(), options);
    }
    return *sampler;
  }
  std::vector<Sample> Run(Sampler& sampler, const std::vector<std::vector<int32_t>>& prompts,
                          const SamplingOptions& options, const TokenCallback& callback = nullptr) {
    auto samples = sampler.Generate(loaded_->params, prompts, options, callback);
    EXPECT_TRUE(samples.ok()) << samples.status();
    // Of the right size, so that a failure is reported and nothing worse.
    return samples.ok()
               ? *samples
               : std::vector<Sample>(prompts.size() * static_cast<size_t>(options.num_samples));
  }

  // Log-softmax of the logits / temperature at each of the last `count` positions of `ids`, by
  // the forward pass that training uses.
  std::vector<std::vector<double>> ForwardLogProbs(const std::vector<int32_t>& ids, size_t count,
                                                   double temperature) {
    const auto length = static_cast<int64_t>(ids.size());
    const models::Model& model = *loaded_->model;
    graph::Graph graph;
    nn::ParamMap params;
    for (const nn::ParamSpec& spec : model.Params({})) {
      params[spec.name] = graph.AddParameter(TensorType(DType::kF32, spec.dims), spec.name);
    }
    const TensorType type(DType::kS32, {1, length});
    models::Inputs inputs;
    inputs.tokens = graph.AddParameter(type, "tokens");
    inputs.positions = ops::Iota(graph, DType::kS32, {1, length}, 1);
    inputs.segment_ids = ops::Full(graph, DType::kS32, {1, length}, 1);
    graph.SetOutputs({model.Logits(params, model.Hidden(params, inputs, {}), {})}, {"logits"});
    std::vector<HostTensor> arguments = loaded_->host_params;
    arguments.push_back(
        HostTensor::From<int32_t>(DType::kS32, {1, length}, std::span<const int32_t>(ids)));
    const HostTensor logits = RunGraph(graph, arguments)->front();
    const auto vocab = static_cast<size_t>(model.config().vocab_size);
    std::vector<std::vector<double>> all;
    for (size_t t = ids.size() - count; t < ids.size(); ++t) {
      std::vector<double> row(vocab);
      double sum = 0;
      for (size_t v = 0; v < vocab; ++v) {
        row[v] = static_cast<double>(logits.as<float>()[t * vocab + v]) / temperature;
        sum += std::exp(row[v]);
      }
      for (double& value : row) value -= std::log(sum);
      all.push_back(std::move(row));
    }
    return all;
  }

  inline static std::map<std::string, std::unique_ptr<Loaded>> models_;
  Loaded* loaded_ = nullptr;
  std::vector<int32_t> prompt_, generated_;
};

// What does not depend on the model is tested with one.
class SamplerBehaviorTest : public SamplerTest {};

TEST_P(SamplerTest, GreedyIsTransformersGreedy) {
  for (const int64_t steps : {1, 3}) {
    const auto samples = Run(Shared(steps), {prompt_}, Options(8, 0, 0));
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_THAT(samples[0].tokens, ElementsAreArray(generated_)) << steps;
    EXPECT_EQ(samples[0].finish_reason, FinishReason::kLength);
  }
}

TEST_P(SamplerTest, RaggedBatchIsEachPromptAlone) {
  std::vector<int32_t> longer = prompt_;
  longer.insert(longer.end(), generated_.begin(), generated_.begin() + 3);
  Sampler& sampler = Shared();
  const SamplingOptions options = Options(5, 1, 7);
  const auto both = Run(sampler, {prompt_, longer}, options);
  SamplingOptions second = options;
  second.first_sample_id = 1;
  const auto alone0 = Run(sampler, {prompt_}, options);
  const auto alone1 = Run(sampler, {longer}, second);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].tokens, alone0[0].tokens);
  EXPECT_EQ(both[1].tokens, alone1[0].tokens);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(both[1].log_probs[i], alone1[0].log_probs[i], 1e-5);
  }
}

TEST_P(SamplerBehaviorTest, SeedsAndFilters) {
  Sampler& sampler = Shared();
  const SamplingOptions plain = Options(8, 1, 3);
  const auto first = Run(sampler, {prompt_}, plain);
  EXPECT_EQ(Run(sampler, {prompt_}, plain)[0].tokens, first[0].tokens);
  SamplingOptions other = plain;
  other.seed = 4;
  EXPECT_NE(Run(sampler, {prompt_}, other)[0].tokens, first[0].tokens);
  SamplingOptions keep_all = plain;
  keep_all.top_k = loaded_->model->config().vocab_size;
  keep_all.top_p = std::nextafter(1.0, 0.0);
  EXPECT_EQ(Run(sampler, {prompt_}, keep_all)[0].tokens, first[0].tokens);
  SamplingOptions one = plain;
  one.top_k = 1;
  EXPECT_THAT(Run(sampler, {prompt_}, one)[0].tokens, ElementsAreArray(generated_));
  one.top_k = 0;
  one.top_p = 1e-6;
  EXPECT_THAT(Run(sampler, {prompt_}, one)[0].tokens, ElementsAreArray(generated_));
}

TEST_P(SamplerBehaviorTest, StopsAtAStopIdAndRefusesBadPrompts) {
  Sampler& sampler = Shared();
  SamplingOptions options = Options(8, 0, 0);
  options.stop_ids = {generated_[2]};
  const auto samples = Run(sampler, {prompt_}, options);
  EXPECT_EQ(samples[0].tokens.back(), generated_[2]);
  EXPECT_LE(samples[0].tokens.size(), 3u);
  EXPECT_EQ(samples[0].finish_reason, FinishReason::kStop);

  EXPECT_EQ(sampler.Generate(loaded_->params, {{}}, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sampler.Generate(loaded_->params, {{131}}, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.max_new_tokens = sampler.max_length();
  EXPECT_THAT(std::string(sampler.Generate(loaded_->params, {prompt_}, options).status().message()),
              HasSubstr("exceed the context"));
}

// 4096 first tokens against the exact probabilities.
TEST_P(SamplerBehaviorTest, TokensHaveTheModelsProbabilities) {
  const std::vector<double> log_probs = ForwardLogProbs(prompt_, 1, 1)[0];
  constexpr int64_t kSamples = 4096;
  SamplingOptions options = Options(1, 1, 12345);
  options.num_samples = kSamples;
  std::vector<int64_t> counts(log_probs.size(), 0);
  for (const Sample& sample : Run(Shared(), {prompt_}, options)) {
    ASSERT_EQ(sample.tokens.size(), 1u);
    ++counts[static_cast<size_t>(sample.tokens[0])];
  }
  // Tokens expected less than five times share a cell, as the test's approximation needs.
  const auto chi_square = [&](double temperature) {
    double total = 0;
    for (const double value : log_probs) total += std::exp(value / temperature);
    double sum = 0, rare_expected = 0, rare_count = 0;
    int cells = 0;
    const auto add = [&](double count, double expected) {
      sum += (count - expected) * (count - expected) / expected;
      ++cells;
    };
    for (size_t v = 0; v < log_probs.size(); ++v) {
      const double expected = kSamples * std::exp(log_probs[v] / temperature) / total;
      if (expected >= 5) {
        add(static_cast<double>(counts[v]), expected);
      } else {
        rare_expected += expected;
        rare_count += static_cast<double>(counts[v]);
      }
    }
    if (rare_expected > 0) add(rare_count, rare_expected);
    // Standard deviations above the mean of a chi-square distribution.
    return (sum - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
  };
  EXPECT_LT(chi_square(1.0), 4);
  EXPECT_GT(chi_square(1.25), 4) << "another temperature is not noticed";
}

TEST_P(SamplerTest, LogProbsAreThoseOfTheForwardPass) {
  SamplingOptions options = Options(8, 0.8, 5);
  options.top_k = 20;
  for (const double temperature : {1.0, 1.7}) {
    options.log_prob_temperature = temperature;
    const Sample sample = Run(Shared(), {prompt_}, options)[0];
    ASSERT_EQ(sample.tokens.size(), 8u);
    std::vector<int32_t> ids = prompt_;
    ids.insert(ids.end(), sample.tokens.begin(), sample.tokens.end() - 1);
    const auto expected = ForwardLogProbs(ids, sample.tokens.size(), temperature);
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
      EXPECT_NEAR(sample.log_probs[i], expected[i][static_cast<size_t>(sample.tokens[i])], 1e-5);
    }
  }
}

TEST_P(SamplerBehaviorTest, SamplesOfAPromptAreThoseOfTheirIds) {
  std::vector<int32_t> other = prompt_;
  other.push_back(generated_[0]);
  SamplingOptions options = Options(5, 1, 9);
  options.num_samples = 3;
  const auto samples = Run(Shared(), {prompt_, other}, options);
  ASSERT_EQ(samples.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(samples[i].prompt, i < 3 ? 0 : 1);
  EXPECT_NE(samples[0].tokens, samples[1].tokens);
  options.num_samples = 1;
  options.first_sample_id = 4;
  EXPECT_EQ(Run(Shared(), {other}, options)[0].tokens, samples[4].tokens);
}

// More samples than rows, of prompts of several lengths, which end at different times: each takes
// the place of one that has ended, and gets what it would get beside all of them.
TEST_P(SamplerBehaviorTest, WaitingSamplesTakeThePlacesOfThoseThatHaveEnded) {
  std::vector<int32_t> longer = prompt_;
  longer.insert(longer.end(), generated_.begin(), generated_.begin() + 2);
  SamplingOptions sampling = Options(12, 1, 9);
  sampling.num_samples = 9;
  const auto run = [&](Sampler& sampler) {
    std::map<int64_t, int64_t> count;
    return Run(sampler, {prompt_, longer}, sampling, [&](int64_t sample, int32_t, float) {
      return ++count[sample] < 2 + sample * 5 % 11;
    });
  };
  const auto together = run(Shared());
  for (const auto& [rows, steps] :
       std::vector<std::pair<int64_t, int64_t>>{{4, 1}, {16, 1}, {4, 3}}) {
    SamplerOptions options;
    options.max_rows = rows;
    options.steps_per_call = steps;
    const auto sampler = *Sampler::Create(loaded_->client, nullptr, loaded_->model.get(), options);
    const auto waiting = run(*sampler);
    int64_t tokens = 0;
    for (size_t i = 0; i < together.size(); ++i) {
      EXPECT_EQ(waiting[i].tokens, together[i].tokens) << i;
      EXPECT_EQ(waiting[i].finish_reason, together[i].finish_reason) << i;
      for (size_t t = 0; t < waiting[i].log_probs.size(); ++t) {
        EXPECT_NEAR(waiting[i].log_probs[t], together[i].log_probs[t], 1e-5);
      }
      tokens += std::ssize(waiting[i].tokens);
    }
    // Rows are seldom idle: less than one in three here.
    EXPECT_LT(sampler->stats().decode_steps * rows * 2, tokens * 3) << rows;
    EXPECT_EQ(sampler->MemoryStats()->size(), 4u);
  }
}

TEST_P(SamplerBehaviorTest, AStopEndsAllSamples) {
  std::atomic<bool> stop = false;
  SamplingOptions sampling = Options(12, 1, 9);
  sampling.num_samples = 3;
  sampling.stop = &stop;
  const std::vector<std::vector<int32_t>> prompts = {prompt_};
  const auto samples = Shared().Generate(loaded_->params, prompts, sampling,
                                         [&](int64_t, int32_t, float) { return !(stop = true); });
  EXPECT_EQ(samples.status().code(), absl::StatusCode::kCancelled) << samples.status();
}

// Nine samples, of which one goes on when the others have ended: in two rows instead of nine, with
// the tokens that it has alone.
TEST_P(SamplerBehaviorTest, ALongSampleGoesOnInFewerRows) {
  SamplerOptions options;
  options.max_rows = 8;
  const auto run = [&](int64_t max_new_tokens, Sampler& sampler, std::vector<uint32_t> ids,
                       double temperature = 1) {
    SamplingOptions sampling = Options(max_new_tokens, temperature, 9);
    sampling.num_samples = ids.empty() ? 9 : 1;
    sampling.first_sample_id = ids.empty() ? 0 : ids[0];
    std::map<int64_t, int64_t> count;
    return Run(sampler, {prompt_}, sampling, [&](int64_t sample, int32_t, float) {
      return !ids.empty() || sample == 5 || ++count[sample] < 3;
    });
  };
  const auto names = [](const Sampler& sampler) {
    std::string all;
    const auto memory = *sampler.MemoryStats();
    for (const auto& [name, stats] : memory) all += name + " ";
    return all;
  };
  const auto sampler = *Sampler::Create(loaded_->client, nullptr, loaded_->model.get(), options);
  const auto samples = run(100, *sampler, {});
  EXPECT_THAT(names(*sampler), HasSubstr("shrink[8,2,128]"));
  EXPECT_THAT(names(*sampler), HasSubstr("decode[2,128,sample]"));
  const Sample alone = run(100, Shared(), {5})[0];
  ASSERT_EQ(alone.tokens.size(), 100u);
  EXPECT_EQ(samples[5].tokens, alone.tokens);
  for (size_t t = 0; t < alone.log_probs.size(); ++t) {
    EXPECT_NEAR(samples[5].log_probs[t], alone.log_probs[t], 1e-5);
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].tokens.size(), i == 5 ? 100u : 3u) << i;
  }
  // How tokens are chosen is nothing to the programs that only move rows.
  const auto num_programs = [&](const char* kind) {
    int64_t count = 0;
    const auto memory = *sampler->MemoryStats();
    for (const auto& [name, stats] : memory) count += name.starts_with(kind);
    return count;
  };
  const int64_t num_decodes = num_programs("decode");
  const int64_t num_inserts = num_programs("insert");
  run(100, *sampler, {}, /*temperature=*/0);
  EXPECT_EQ(num_programs("decode"), 2 * num_decodes);
  EXPECT_EQ(num_programs("shrink"), 1);
  EXPECT_EQ(num_programs("insert"), num_inserts);
  // Not for a few tokens.
  const auto short_ones = *Sampler::Create(loaded_->client, nullptr, loaded_->model.get(), options);
  run(60, *short_ones, {});
  EXPECT_THAT(names(*short_ones), ::testing::Not(HasSubstr("shrink")));
}

// Numbers of rows that are near each other share programs, and lengths up to a power of two.
TEST_P(SamplerBehaviorTest, ProgramsAreFew) {
  const auto sampler = *Sampler::Create(loaded_->client, nullptr, loaded_->model.get(), {});
  for (const int64_t rows : {13, 14}) {
    for (const int64_t length : {2, 7, 10}) {
      SamplingOptions options = Options(length, 0, 0);
      options.num_samples = rows;
      Run(*sampler, {prompt_}, options);
    }
  }
  const auto memory = sampler->MemoryStats();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->size(), 2u);
  // The caches are updated where they are.
  const auto& decode = memory->at("decode[14,16,greedy]");
  const int64_t cache_bytes =
      2 * loaded_->model->CacheType(14, 16, DType::kF32).num_elements() * int64_t{sizeof(float)};
  EXPECT_GE(decode.alias_bytes, cache_bytes);
}

TEST_P(SamplerBehaviorTest, CallbackSeesEveryTokenAndEndsASample) {
  SamplingOptions options = Options(8, 1, 3);
  options.num_samples = 2;
  for (const int64_t steps : {1, 3}) {
    std::map<int64_t, std::vector<int32_t>> seen;
    const auto samples =
        Run(Shared(steps), {prompt_}, options, [&](int64_t sample, int32_t token, float) {
          seen[sample].push_back(token);
          return sample == 0 || seen[sample].size() < 3;
        });
    EXPECT_EQ(samples[0].tokens, seen[0]);
    EXPECT_EQ(samples[1].tokens, seen[1]);
    EXPECT_EQ(samples[0].tokens.size(), 8u);
    EXPECT_EQ(samples[1].tokens.size(), 3u);
    EXPECT_EQ(samples[0].finish_reason, FinishReason::kLength);
    EXPECT_EQ(samples[1].finish_reason, FinishReason::kCallback);
  }
}

INSTANTIATE_TEST_SUITE_P(TinyLlama, SamplerBehaviorTest, ::testing::Values("tiny-llama"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

INSTANTIATE_TEST_SUITE_P(TinyModels, SamplerTest, ::testing::Values("tiny-llama", "tiny-qwen3"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

}  // namespace
}  // namespace mw::train
