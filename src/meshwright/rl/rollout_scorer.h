// RolloutScorer: what rollouts are compared with before they are learned.
#ifndef MESHWRIGHT_RL_ROLLOUT_SCORER_H_
#define MESHWRIGHT_RL_ROLLOUT_SCORER_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/rl/rollouts.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/train/config.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/open_model.h"

namespace mw::rl {

// An engine with `model`'s weights that log-probs of a reference are scored with.
// Errors: those of train::MakeEngine.
absl::StatusOr<std::unique_ptr<train::Engine>> MakeReference(
    std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
    const train::OpenedModel& model, const train::TrainConfig& config);

class RolloutScorer {
 public:
  // `engine` is the policy's. `reference` may be null: then there is none, or, where the settings
  // want one, it is the policy's without its adapters. All must outlive the scorer.
  RolloutScorer(const train::TrainConfig* config, train::Engine* engine, train::Engine* reference)
      : config_(config), engine_(engine), reference_(reference) {}

  // Gives the rollouts of a batch the log-probs that the settings want, the advantages over others
  // of their groups, and whether they are kept. Errors: those of ScoreRollouts; Cancelled once
  // `stop` is true.
  absl::Status Score(std::vector<Rollout>& rollouts, const std::atomic<bool>& stop) const;

 private:
  absl::Status ScoreLogProbs(std::vector<Rollout>& rollouts, const std::atomic<bool>& stop) const;
  absl::StatusOr<std::vector<double>> LessKl(const std::vector<double>& rewards,
                                             const std::vector<Rollout>& rollouts) const;

  const train::GrpoOptions& loss() const { return config_->engine.loss.grpo; }

  const train::TrainConfig* config_;
  train::Engine* engine_;
  train::Engine* reference_;
};

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_ROLLOUT_SCORER_H_
