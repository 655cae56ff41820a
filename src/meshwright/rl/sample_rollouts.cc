#include "meshwright/rl/sample_rollouts.h"

#include <string>
#include <utility>

#include "meshwright/base/status_macros.h"

namespace mw::rl {

uint64_t MixSeed(uint64_t seed, uint64_t stream) {
  uint64_t x = seed + 0x9e3779b97f4a7c15u * (stream + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

absl::StatusOr<std::vector<Rollout>> SampleRollouts(PolicySampler& policy, RewardSum& rewards,
                                                    const Prompts& prompts,
                                                    const std::vector<int64_t>& rows,
                                                    const SampleOptions& options,
                                                    const std::atomic<bool>& stop,
                                                    BatchTimes& times) {
  std::vector<std::vector<int32_t>> ids;
  ids.reserve(rows.size());
  for (const int64_t row : rows) ids.push_back(prompts.rows[static_cast<size_t>(row)].ids);
  Clock::time_point start = Clock::now();
  MW_ASSIGN_OR_RETURN(
      std::vector<PolicySampler::Completion> completions,
      policy.Generate(ids, options.num_samples, options.temperature, options.seed, stop));
  times.compile_s += policy.stats().compile_s;
  times.sampled_tokens += policy.stats().new_tokens;
  std::vector<Rollout> rollouts;
  std::vector<RewardInput> inputs;
  for (auto& [sample, text] : completions) {
    const auto prompt = static_cast<size_t>(rows[static_cast<size_t>(sample.prompt)]);
    const data::PromptRow& row = prompts.rows[prompt];
    Rollout& rollout = rollouts.emplace_back();
    rollout.prompt = static_cast<int64_t>(prompt);
    rollout.group = sample.prompt;
    rollout.ids = row.ids;
    rollout.ids.insert(rollout.ids.end(), sample.tokens.begin(), sample.tokens.end());
    rollout.prompt_tokens = std::ssize(row.ids);
    rollout.sampler_log_probs = std::move(sample.log_probs);
    rollout.finish_reason = sample.finish_reason;
    rollout.completion = std::move(text);
    inputs.push_back({.row_id = row.id,
                      .prompt = row.text,
                      .completion = rollout.completion,
                      .row = &prompts.fields[prompt],
                      .num_tokens = rollout.num_tokens()});
  }
  times.sampling_s += SecondsSince(start);
  start = Clock::now();
  MW_ASSIGN_OR_RETURN(RewardSum::Scores scores, rewards.Score(inputs, &stop));
  for (size_t i = 0; i < rollouts.size(); ++i) {
    rollouts[i].reward = scores.totals[i];
    rollouts[i].reward_parts = std::move(scores.parts[i]);
  }
  times.rewards_s += SecondsSince(start);
  return rollouts;
}

}  // namespace mw::rl
