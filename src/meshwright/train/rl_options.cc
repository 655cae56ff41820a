#include "meshwright/train/rl_options.h"

#include <fmt/format.h>

#include <cmath>

#include "meshwright/base/float32.h"
#include "meshwright/base/one_of.h"
#include "meshwright/base/status_macros.h"

namespace mw::train {
namespace {

absl::Status CheckAtLeast(const char* key, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} must be at least {}, not {}", key, least, value));
}

absl::Status CheckNotNegative(const char* key, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {} must be finite and not negative", key, value));
}

}  // namespace

absl::Status AdvantageOptions::Validate() const {
  MW_RETURN_IF_ERROR(OneOf("advantage.mode", mode, {"std", "none", "rloo"}).status());
  MW_RETURN_IF_ERROR(OneOf("advantage.zero_std", zero_std, {"keep", "drop"}).status());
  if (std_ddof != 0 && std_ddof != 1) {
    return absl::InvalidArgumentError(
        fmt::format("advantage.std_ddof {} must be 0 or 1", std_ddof));
  }
  return CheckNotNegative("advantage.eps", eps);
}

absl::Status RewardOptions::Validate() const {
  if (answer.empty()) {
    return absl::InvalidArgumentError("reward.answer is empty; give the name of a field of rows");
  }
  MW_RETURN_IF_ERROR(CheckNotNegative("reward.tolerance", tolerance));
  MW_RETURN_IF_ERROR(CheckAtLeast("reward.overlong_buffer_tokens", overlong_buffer_tokens, 0));
  // A day; what waits longer waits for nothing.
  if (!(timeout_s > 0 && timeout_s <= 86400)) {
    return absl::InvalidArgumentError(fmt::format(
        "reward.timeout_s {} must be more than 0 and at most 86400 seconds", timeout_s));
  }
  return absl::OkStatus();
}

absl::Status PolicyOptions::Validate() const {
  constexpr int64_t kMostSamples = 65536;
  MW_RETURN_IF_ERROR(CheckAtLeast("prompts_per_step", prompts_per_step, 1));
  MW_RETURN_IF_ERROR(CheckAtLeast("num_generations", num_generations, 2));
  if (prompts_per_step > kMostSamples / num_generations) {
    return absl::InvalidArgumentError(
        fmt::format("prompts_per_step x num_generations is at most {} samples, not {} x {}",
                    kMostSamples, prompts_per_step, num_generations));
  }
  MW_RETURN_IF_ERROR(CheckAtLeast("num_iterations", num_iterations, 1));
  MW_RETURN_IF_ERROR(OneOf("old_log_probs", old_log_probs, {"trainer", "sampler"}).status());
  MW_RETURN_IF_ERROR(CheckAtLeast("max_draws_per_step", max_draws_per_step, 1));
  MW_RETURN_IF_ERROR(CheckAtLeast("sampling_rows", sampling_rows, 1));
  if (!FitsFloat32(eval_temperature) || (eval_temperature != 0 && eval_temperature < 1e-6)) {
    return absl::InvalidArgumentError(fmt::format(
        "eval_temperature {} is not possible; use 0 (greedy) or at least 1e-6", eval_temperature));
  }
  MW_RETURN_IF_ERROR(advantage.Validate());
  return reward.Validate();
}

}  // namespace mw::train
