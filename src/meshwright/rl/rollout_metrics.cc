#include "meshwright/rl/rollout_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

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

std::string SampleLine(const Rollout& rollout, const data::PromptRow& prompt, int64_t step,
                       const std::vector<std::string>& names) {
  nlohmann::ordered_json line = {{"step", step},
                                 {"id", prompt.id},
                                 {"group", rollout.group},
                                 {"prompt", prompt.text},
                                 {"completion", rollout.completion},
                                 {"reward", rollout.reward}};
  if (names.size() > 1) {
    for (size_t i = 0; i < names.size(); ++i) line["rewards"][names[i]] = rollout.reward_parts[i];
  }
  line["advantage"] = rollout.advantage;
  line["kept"] = rollout.is_kept;
  line["tokens"] = rollout.num_tokens();
  line["finish_reason"] = train::FinishReasonName(rollout.finish_reason);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string SamplesText(const std::vector<const Rollout*>& rollouts,
                        const data::PromptRow& prompt) {
  // Indented by four, whatever is in it stands as it is.
  const auto quoted = [](const std::string& text) {
    std::string out = "    ";
    for (const char c : text) {
      out += c;
      if (c == '\n') out += "    ";
    }
    return out;
  };
  std::string text = fmt::format("**{}**\n\n{}\n", prompt.id, quoted(prompt.text));
  for (const Rollout* const rollout : rollouts) {
    text += fmt::format("\nreward {:.4g}, advantage {:.4g}\n\n{}\n", rollout->reward,
                        rollout->advantage, quoted(rollout->completion));
  }
  return text;
}

}  // namespace mw::rl
