#include "meshwright/rl/rollout_scorer.h"

#include <cstdint>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/rl/advantages.h"
#include "meshwright/rl/grpo_settings.h"
#include "meshwright/train/run.h"

namespace mw::rl {

absl::StatusOr<std::unique_ptr<train::Engine>> MakeReference(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const train::OpenedModel& model, const train::TrainConfig& config) {
  // No loss of its own: it is only scored with.
  train::TrainConfig scoring = config;
  scoring.engine.loss = train::LossOptions();
  scoring.engine.loss.head_chunk_tokens = config.engine.loss.head_chunk_tokens;
  scoring.engine.trainable_parameters.clear();
  return train::MakeEngine(std::move(client), cache, model, scoring, /*weights_only=*/true);
}

absl::Status RolloutScorer::Score(std::vector<Rollout>& rollouts,
                                  const std::atomic<bool>& stop) const {
  if (rollouts.empty()) return absl::OkStatus();
  MW_RETURN_IF_ERROR(ScoreLogProbs(rollouts, stop));
  std::vector<int64_t> groups;
  std::vector<double> rewards;
  for (const Rollout& rollout : rollouts) {
    groups.push_back(rollout.group);
    rewards.push_back(rollout.reward);
  }
  if (loss().kl_coef != 0 && loss().kl_in == "reward") {
    MW_ASSIGN_OR_RETURN(rewards, LessKl(rewards, rollouts));
  }
  MW_ASSIGN_OR_RETURN(const Advantages advantages,
                      ComputeAdvantages(groups, rewards, config_->policy.advantage));
  for (size_t i = 0; i < rollouts.size(); ++i) {
    rollouts[i].advantage = advantages.values[i];
    rollouts[i].is_kept = advantages.kept[i];
  }
  return absl::OkStatus();
}

absl::Status RolloutScorer::ScoreLogProbs(std::vector<Rollout>& rollouts,
                                          const std::atomic<bool>& stop) const {
  train::ScoreOptions options;
  options.temperature = loss().temperature;
  const RowShape shape = RowShapeOf(*config_);
  if (config_->policy.old_log_probs == "sampler") {
    for (Rollout& rollout : rollouts) rollout.old_log_probs = rollout.sampler_log_probs;
  } else if (loss().has_old_log_probs) {
    MW_RETURN_IF_ERROR(
        ScoreRollouts(*engine_, options, shape, &Rollout::old_log_probs, rollouts, stop));
  }
  if (loss().kl_coef == 0) return absl::OkStatus();
  options.without_adapters = reference_ == nullptr;
  return ScoreRollouts(reference_ != nullptr ? *reference_ : *engine_, options, shape,
                       &Rollout::ref_log_probs, rollouts, stop);
}

// Against the trainer's log-probs where it has scored the samples, else the sampler's.
absl::StatusOr<std::vector<double>> RolloutScorer::LessKl(
    const std::vector<double>& rewards, const std::vector<Rollout>& rollouts) const {
  const Dims dims = {std::ssize(rollouts), config_->generation.max_new_tokens};
  HostTensor old = HostTensor::Zeros(DType::kF32, dims);
  HostTensor ref = HostTensor::Zeros(DType::kF32, dims);
  HostTensor mask = HostTensor::Zeros(DType::kF32, dims);
  size_t row_begin = 0;
  for (const Rollout& rollout : rollouts) {
    const std::vector<float>& before =
        rollout.old_log_probs.empty() ? rollout.sampler_log_probs : rollout.old_log_probs;
    for (size_t t = 0; t < before.size() && !rollout.is_masked; ++t) {
      old.mutable_as<float>()[row_begin + t] = before[t];
      ref.mutable_as<float>()[row_begin + t] = rollout.ref_log_probs[t];
      mask.mutable_as<float>()[row_begin + t] = 1;
    }
    row_begin += static_cast<size_t>(dims[1]);
  }
  return RewardsLessKl(rewards, old, ref, mask, loss());
}

}  // namespace mw::rl
