// What samples need of the settings.
#include "meshwright/train/config.h"

namespace mw::train {

const std::vector<std::string_view>& PolicyKeys() {
  static const auto* const keys = new std::vector<std::string_view>{
      "prompts_per_step",
      "num_generations",
      "num_iterations",
      "old_log_probs",
      "mask_truncated_completions",
      "max_draws_per_step",
      "sampling_rows",
      "eval_temperature",
      "advantage.mode",
      "advantage.std_ddof",
      "advantage.eps",
      "advantage.zero_std",
      "reward.weights",
      "reward.answer",
      "reward.tolerance",
      "reward.pattern",
      "reward.format",
      "reward.overlong_buffer_tokens",
      "reward.timeout_s",
  };
  return *keys;
}

absl::Status TrainConfig::FinishPolicy() {
  if (engine.loss.name != "grpo") return absl::OkStatus();
  return policy.Validate();
}

}  // namespace mw::train
