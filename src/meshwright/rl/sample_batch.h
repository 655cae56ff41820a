// SampleBatch: samples that are being learned, and how far a run has come as checkpoints state it.
#ifndef MESHWRIGHT_RL_SAMPLE_BATCH_H_
#define MESHWRIGHT_RL_SAMPLE_BATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/rl/rollouts.h"
#include "meshwright/train/async_checkpointer.h"
#include "meshwright/train/config.h"
#include "meshwright/train/metrics.h"

namespace mw::rl {

// A batch of samples, from its draw to its last update.
struct SampleBatch {
  std::vector<Rollout> rollouts;
  int64_t first_step = 0;       // the update that learns it first
  int64_t num_updates = 0;      // done
  train::MetricRecord metrics;  // for that update's record
  std::string lines;            // for samples.jsonl, until they are written
};

struct GrpoProgress {
  std::optional<SampleBatch> batch;  // under way
  int64_t num_draws = 0;             // of prompts_per_step prompts, in the whole run
  std::vector<std::string> rewards;  // as they were asked for; empty: not known

  // Adds it to a checkpoint of a run of `config`, whose prompts have this fingerprint: the samples
  // under way as a file of their own.
  void AddTo(const train::TrainConfig& config, uint64_t prompts_fingerprint,
             train::CheckpointJob& job) const;

  // What a checkpoint that lies in `folder` states, of the run in `out`, to go on with `config`.
  // Errors: FailedPrecondition for a run of another kind, other prompts or settings that do not
  // continue the samples under way; DataLoss for a damaged checkpoint.
  static absl::StatusOr<GrpoProgress> Read(const train::CheckpointState& saved,
                                           const std::string& folder, const std::string& out,
                                           const train::TrainConfig& config,
                                           uint64_t prompts_fingerprint);
};

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_SAMPLE_BATCH_H_
