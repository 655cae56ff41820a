#include "meshwright/rl/batch_maker.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/rl/advantages.h"
#include "meshwright/rl/grpo_settings.h"
#include "meshwright/rl/rollout_metrics.h"
#include "meshwright/rl/sample_log.h"
#include "meshwright/rl/sample_rollouts.h"

namespace mw::rl {

absl::StatusOr<SampleBatch> BatchMaker::Make(int64_t first_step, int64_t& num_draws,
                                             const std::atomic<bool>& stop,
                                             BatchTimes& times) const {
  const train::PolicyOptions& policy = parts_.config->policy;
  const int64_t num_rows = BatchPlan::Of(*parts_.config).num_rows;
  SampleBatch batch;
  batch.first_step = first_step;
  int64_t num_groups = 0;
  int64_t num_zero_std = 0;
  int64_t draws = num_draws;
  std::vector<Rollout> drawn;  // all of them, for metrics
  const int64_t most = policy.max_draws_per_step;
  for (int64_t draw = 0; draw < most && std::ssize(batch.rollouts) < num_rows; ++draw) {
    MW_ASSIGN_OR_RETURN(std::vector<Rollout> rollouts, Draw(draws++, stop, times));
    std::vector<int64_t> groups;
    std::vector<double> rewards;
    for (const Rollout& rollout : rollouts) {
      groups.push_back(rollout.group);
      rewards.push_back(rollout.reward);
    }
    MW_ASSIGN_OR_RETURN(const Advantages compared,
                        ComputeAdvantages(groups, rewards, {.mode = "none", .zero_std = "drop"}));
    num_groups += compared.num_groups;
    num_zero_std += compared.num_zero_std_groups;
    drawn.insert(drawn.end(), rollouts.begin(), rollouts.end());
    for (size_t i = 0; i < rollouts.size(); ++i) {
      if (std::ssize(batch.rollouts) == num_rows) break;
      if (most > 1 && !compared.kept[i]) continue;
      batch.rollouts.push_back(std::move(rollouts[i]));
    }
  }
  const int64_t missing = num_rows - std::ssize(batch.rollouts);
  if (missing > 0) {
    parts_.note(fmt::format(
        "step {}: {} of {} prompts have rewards that differ after max_draws_per_step={} draws",
        first_step, std::ssize(batch.rollouts) / policy.num_generations, policy.prompts_per_step,
        most));
  }
  const Clock::time_point start = Clock::now();
  MW_RETURN_IF_ERROR(parts_.scorer->Score(batch.rollouts, stop));
  times.log_probs_s += SecondsSince(start);
  const std::vector<std::string>& names = parts_.rewards->names();
  AddRolloutMetrics(drawn, names, batch.metrics);
  batch.metrics.Set("rl/frac_reward_zero_std",
                    static_cast<double>(num_zero_std) / static_cast<double>(num_groups));
  if (most > 1) batch.metrics.Set("rl/draws", static_cast<double>(draws - num_draws));
  for (const Rollout& rollout : batch.rollouts) {
    const auto prompt = static_cast<size_t>(rollout.prompt);
    batch.lines += SampleLine(rollout, parts_.prompts->rows[prompt], first_step, names);
  }
  if (std::string text = SamplesText(batch.rollouts, *parts_.prompts); !text.empty()) {
    batch.metrics.texts = {{"samples", std::move(text)}};
  }
  // Rows that are not there are rows that are not kept: updates are cut alike.
  for (int64_t i = 0; i < missing; ++i) {
    Rollout& none = batch.rollouts.emplace_back();
    none.ids = {0};
    none.prompt_tokens = 1;
    none.is_kept = false;
  }
  num_draws = draws;
  return batch;
}

absl::StatusOr<std::vector<Rollout>> BatchMaker::Draw(int64_t draw, const std::atomic<bool>& stop,
                                                      BatchTimes& times) const {
  const train::TrainConfig& config = *parts_.config;
  const train::PolicyOptions& policy = config.policy;
  MW_ASSIGN_OR_RETURN(const data::Batch drawn, parts_.source->Next());
  std::vector<int64_t> prompts;
  for (const std::vector<int64_t>& row : drawn.example_indices) {
    prompts.insert(prompts.end(), row.begin(), row.end());
  }
  MW_ASSIGN_OR_RETURN(
      std::vector<Rollout> rollouts,
      SampleRollouts(*parts_.policy, *parts_.rewards, *parts_.prompts, prompts,
                     {.num_samples = policy.num_generations,
                      .temperature = config.generation.temperature,
                      .seed = MixSeed(config.data.seed, static_cast<uint64_t>(draw))},
                     stop, times));
  for (Rollout& rollout : rollouts) {
    rollout.group += draw * policy.prompts_per_step;
    rollout.is_masked = policy.mask_truncated_completions && rollout.is_truncated();
  }
  return rollouts;
}

}  // namespace mw::rl
