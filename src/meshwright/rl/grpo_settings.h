// What the loop of grpo makes of its settings.
#ifndef MESHWRIGHT_RL_GRPO_SETTINGS_H_
#define MESHWRIGHT_RL_GRPO_SETTINGS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/rl/rollouts.h"
#include "meshwright/train/config.h"

namespace mw::rl {

// How the samples of a batch are cut into updates. Packing does not change it: an update learns the
// same samples, in fewer micro-batches.
struct BatchPlan {
  int64_t num_rows = 0;         // samples
  int64_t rows_per_update = 0;  // at most
  int64_t num_passes = 0;

  static BatchPlan Of(const train::TrainConfig& config) {
    return {config.policy.prompts_per_step * config.policy.num_generations,
            config.gradient_accumulation_steps * config.data.batch_size,
            config.policy.num_iterations};
  }
  int64_t updates_per_pass() const { return std::max<int64_t>(1, num_rows / rows_per_update); }
  int64_t updates_per_batch() const { return updates_per_pass() * num_passes; }
};

// How many samples may share a row: 1 without packing, else as many samples of an update as a row
// has room for, those of the shortest prompts with one token each, up to 64, since sums over
// samples cost that much more. A prompt has no more samples than a batch draws of it while all
// prompts are drawn alike; where a later batch could have more in a row, they take another row.
// REQUIRES: there are prompts; FinishGrpoSettings.
int64_t MaxSegments(const train::TrainConfig& config, std::vector<int64_t> prompt_lengths);

// How rollouts lie in micro-batches, by the settings and max_segments of the loss.
RowShape RowShapeOf(const train::TrainConfig& config);

// Fills in what follows from other settings: gradient_accumulation_steps where it is not given, the
// loss's temperature and what its batches hold.
//
// Errors: InvalidArgument for what the loop can't do, naming the setting and what would work.
absl::Status FinishGrpoSettings(train::TrainConfig& config);

// The same and max_segments of a run whose prompts are not known, for who plans it: as many samples
// share a row as of any prompts could. Errors: those of FinishGrpoSettings.
absl::Status AssumeGrpoRun(train::TrainConfig& config);

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_GRPO_SETTINGS_H_
