#include "meshwright/rl/rollout_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace mw::rl {
namespace {

double Mean(const std::vector<Rollout>& rollouts,
            const std::function<double(const Rollout&)>& value) {
  double sum = 0;
  for (const Rollout& rollout : rollouts) sum += value(rollout);
  return sum / static_cast<double>(rollouts.size());
}

double RewardOf(const Rollout& rollout) { return rollout.reward; }
double Length(const Rollout& rollout) { return static_cast<double>(rollout.num_tokens()); }
double Truncated(const Rollout& rollout) { return rollout.is_truncated() ? 1.0 : 0.0; }

// Of n samples, by n - 1; 0 of one.
double StandardDeviation(const std::vector<Rollout>& rollouts) {
  if (rollouts.size() < 2) return 0;
  const double mean = Mean(rollouts, RewardOf);
  double squares = 0;
  for (const Rollout& rollout : rollouts) {
    squares += (rollout.reward - mean) * (rollout.reward - mean);
  }
  return std::sqrt(squares / static_cast<double>(rollouts.size() - 1));
}

void AddParts(const std::vector<Rollout>& rollouts, const std::vector<std::string>& names,
              const char* group, train::MetricRecord& record) {
  if (names.size() < 2) return;
  for (size_t i = 0; i < names.size(); ++i) {
    record.Set(fmt::format("{}/reward/{}", group, names[i]),
               Mean(rollouts, [&](const Rollout& rollout) { return rollout.reward_parts[i]; }));
  }
}

}  // namespace

void AddRolloutMetrics(const std::vector<Rollout>& rollouts, const std::vector<std::string>& names,
                       train::MetricRecord& record) {
  record.Set("rl/reward_mean", Mean(rollouts, RewardOf));
  record.Set("rl/reward_std", StandardDeviation(rollouts));
  AddParts(rollouts, names, "rl", record);
  record.Set("rl/completion_length_mean", Mean(rollouts, Length));
  const auto [shortest, longest] = std::ranges::minmax_element(rollouts, {}, &Rollout::num_tokens);
  record.Set("rl/completion_length_min", Length(*shortest));
  record.Set("rl/completion_length_max", Length(*longest));
  record.Set("rl/truncated_fraction", Mean(rollouts, Truncated));
  record.Set("rl/num_samples", static_cast<double>(rollouts.size()));
}

void AddEvalMetrics(const std::vector<Rollout>& rollouts, const std::vector<std::string>& names,
                    train::MetricRecord& record) {
  record.Set("eval/reward", Mean(rollouts, RewardOf));
  record.Set("eval/reward_stderr",
             StandardDeviation(rollouts) / std::sqrt(static_cast<double>(rollouts.size())));
  AddParts(rollouts, names, "eval", record);
  record.Set("eval/num_samples", static_cast<double>(rollouts.size()));
  record.Set("eval/completion_length_mean", Mean(rollouts, Length));
  record.Set("eval/truncated_fraction", Mean(rollouts, Truncated));
}

}  // namespace mw::rl
