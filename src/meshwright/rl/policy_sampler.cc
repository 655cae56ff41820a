#include "meshwright/rl/policy_sampler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/train/sample_text.h"

namespace mw::rl {

absl::StatusOr<std::unique_ptr<PolicySampler>> PolicySampler::Create(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const models::Model* model, const train::TrainConfig& config, int64_t max_length,
    train::Engine* engine, const data::Tokenizer* tokenizer, Stops stops) {
  if (tokenizer == nullptr && !stops.texts.empty()) {
    return absl::InvalidArgumentError(
        "the model has no tokenizer, so no text can end a sample: leave out --stop");
  }
  std::unique_ptr<PolicySampler> policy(new PolicySampler());
  policy->engine_ = engine;
  policy->tokenizer_ = tokenizer;
  policy->stops_ = std::move(stops);
  policy->max_new_tokens_ = config.generation.max_new_tokens;
  train::SamplerOptions options;
  options.model = engine->options().model;
  options.model.int8_weights = config.generation.sampling_weights == "int8";
  options.weight_dtype = config.engine.weight_dtype;
  options.cache_dtype = config.engine.model.compute_dtype;
  options.max_length = max_length;
  options.num_devices = static_cast<int>(config.engine.mesh.partition.mesh.num_devices());
  options.max_rows = config.policy.sampling_rows;
  options.compiler_flags = config.engine.target.compiler_flags;
  MW_ASSIGN_OR_RETURN(policy->sampler_,
                      train::Sampler::Create(std::move(client), cache, model, options));
  return policy;
}

absl::StatusOr<std::vector<PolicySampler::Completion>> PolicySampler::Generate(
    const std::vector<std::vector<int32_t>>& prompts, int64_t num_samples, double temperature,
    uint64_t seed, const std::atomic<bool>& stop) {
  std::vector<std::vector<runtime::Buffer>> copies;
  MW_ASSIGN_OR_RETURN(const auto weights, engine_->WholeParams(&copies));
  train::SamplingOptions options;
  options.max_new_tokens = max_new_tokens_;
  options.temperature = temperature;
  options.log_prob_temperature = temperature == 0 ? 1.0 : temperature;
  options.seed = seed;
  options.num_samples = num_samples;
  options.stop_ids = stops_.ids;
  options.stop = &stop;
  std::map<int64_t, train::SampleText> texts;
  train::TokenCallback watch;
  if (tokenizer_ != nullptr) {
    watch = [&](int64_t sample, int32_t token, float) {
      return !texts.try_emplace(sample, tokenizer_).first->second.Push(token, stops_.texts);
    };
  }
  MW_ASSIGN_OR_RETURN(std::vector<train::Sample> samples,
                      sampler_->Generate(weights, prompts, options, watch));
  std::vector<Completion> completions;
  for (size_t i = 0; i < samples.size(); ++i) {
    Completion& completion = completions.emplace_back();
    completion.sample = std::move(samples[i]);
    if (completion.sample.finish_reason == train::FinishReason::kCallback) {
      completion.sample.finish_reason = train::FinishReason::kStop;
    }
    if (tokenizer_ == nullptr) {
      completion.text = fmt::format("{}", fmt::join(completion.sample.tokens, " "));
    } else {
      train::SampleText& text = texts.at(static_cast<int64_t>(i));
      text.Finish(stops_.texts);
      completion.text = text.text();
    }
  }
  return completions;
}

}  // namespace mw::rl
