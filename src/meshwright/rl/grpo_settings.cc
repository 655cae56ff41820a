#include "meshwright/rl/grpo_settings.h"

#include <fmt/format.h>

#include <string>

#include "meshwright/base/float32.h"
#include "meshwright/base/status_macros.h"

namespace mw::rl {

RowShape RowShapeOf(const train::TrainConfig& config) {
  return {config.data.batch_size, config.data.max_target_length, config.data.pad_first,
          config.engine.loss.grpo.max_segments};
}

int64_t MaxSegments(const train::TrainConfig& config, std::vector<int64_t> prompt_lengths) {
  if (!config.data.packing) return 1;
  constexpr int64_t kMost = 64;
  const BatchPlan plan = BatchPlan::Of(config);
  const int64_t most = std::min({kMost, plan.num_rows, plan.rows_per_update});
  const int64_t num_prompts = std::ssize(prompt_lengths);
  const int64_t draws = (config.policy.prompts_per_step + num_prompts - 1) / num_prompts;
  std::ranges::sort(prompt_lengths);
  int64_t room = config.data.max_target_length;
  int64_t segments = 0;
  for (const int64_t length : prompt_lengths) {
    const int64_t of_prompt = std::min(draws * config.policy.num_generations, room / (length + 1));
    segments += of_prompt;
    room -= of_prompt * (length + 1);
    if (of_prompt == 0 || segments >= most) break;
  }
  return std::clamp<int64_t>(segments, 1, most);
}

absl::Status FinishGrpoSettings(train::TrainConfig& config) {
  const train::PolicyOptions& policy = config.policy;
  train::GrpoOptions& loss = config.engine.loss.grpo;
  const auto refuse = [](const std::string& text) { return absl::InvalidArgumentError(text); };
  if (config.engine.loss.name != "grpo") {
    return refuse(fmt::format("grpo has loss.name=grpo, not {}", config.engine.loss.name));
  }
  const train::GenerationConfig& generation = config.generation;
  if (generation.temperature == 0) {
    return refuse(
        "temperature=0 makes all samples of a prompt the same, and nothing is learned from "
        "them: give a positive one");
  }
  // Below, float32 logits divided by it could overflow.
  if (!FitsFloat32(generation.temperature) || generation.temperature < 1e-6) {
    return refuse(
        fmt::format("temperature={} is not possible; use at least 1e-6", generation.temperature));
  }
  if (generation.top_k != 0 || generation.top_p != 1) {
    return refuse(fmt::format(
        "{} makes samples likelier than their log-probs say, by the probability that is left "
        "out, and ratios would be wrong by it: leave top_k=0 and top_p=1",
        generation.top_k != 0 ? fmt::format("top_k={}", generation.top_k)
                              : fmt::format("top_p={}", generation.top_p)));
  }
  if (config.given.contains("loss.temperature") && loss.temperature != generation.temperature) {
    return refuse(fmt::format(
        "loss.temperature={} is not temperature={}, with which samples are drawn, and ratios "
        "would compare two distributions: leave it out",
        loss.temperature, generation.temperature));
  }
  if (config.loss_on_prompt) {
    return refuse("loss_on_prompt=true: grpo learns completions alone; leave it out");
  }
  if (config.skip_malformed) {
    return refuse("skip_malformed=true: grpo takes no prompts that are malformed; leave it out");
  }
  if (policy.old_log_probs == "sampler" && loss.importance != "none") {
    return refuse(fmt::format(
        "loss.importance={} corrects for the sampler's log-probs, and with old_log_probs=sampler "
        "ratios are against those: leave one of them out",
        loss.importance));
  }
  const int64_t batch_size = config.data.batch_size;
  const int64_t num_rows = BatchPlan::Of(config).num_rows;
  if (!config.given.contains("gradient_accumulation_steps")) {
    config.gradient_accumulation_steps = (num_rows + batch_size - 1) / batch_size;
  }
  const int64_t rows_per_update = BatchPlan::Of(config).rows_per_update;
  if (rows_per_update > num_rows ? rows_per_update - num_rows >= batch_size
                                 : num_rows % rows_per_update != 0) {
    return refuse(fmt::format(
        "gradient_accumulation_steps={} x batch_size={} rows of an update do not divide the {} "
        "samples of prompts_per_step={} x num_generations={}: leave it out for one update, or "
        "give a divisor of {}",
        config.gradient_accumulation_steps, batch_size, num_rows, policy.prompts_per_step,
        policy.num_generations, std::max<int64_t>(1, num_rows / batch_size)));
  }
  loss.temperature = generation.temperature;
  loss.has_old_log_probs =
      policy.old_log_probs == "sampler" || BatchPlan::Of(config).updates_per_batch() > 1;
  loss.has_sampler_log_probs = policy.old_log_probs == "trainer";
  return absl::OkStatus();
}

absl::Status AssumeGrpoRun(train::TrainConfig& config) {
  MW_RETURN_IF_ERROR(FinishGrpoSettings(config));
  config.engine.loss.grpo.max_segments = MaxSegments(config, {1});
  return absl::OkStatus();
}

}  // namespace mw::rl
