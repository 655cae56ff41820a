// BatchMaker: the samples that a policy learns from next.
#ifndef MESHWRIGHT_RL_BATCH_MAKER_H_
#define MESHWRIGHT_RL_BATCH_MAKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/rl/batch_times.h"
#include "meshwright/rl/policy_sampler.h"
#include "meshwright/rl/prompts.h"
#include "meshwright/rl/reward.h"
#include "meshwright/rl/rollout_scorer.h"
#include "meshwright/rl/sample_batch.h"
#include "meshwright/train/config.h"

namespace mw::rl {

// Draws, samples, rewards and scores batches. Its parts must outlive it.
class BatchMaker {
 public:
  struct Parts {
    const train::TrainConfig* config = nullptr;
    const Prompts* prompts = nullptr;
    data::DataIterator* source = nullptr;  // of the prompts' rows
    PolicySampler* policy = nullptr;
    RewardSum* rewards = nullptr;
    const RolloutScorer* scorer = nullptr;
    // Told in one sentence what a user should know.
    std::function<void(std::string_view)> note = {};
  };
  explicit BatchMaker(Parts parts) : parts_(std::move(parts)) {}

  // The next batch, of exactly prompts_per_step x num_generations rollouts, those of prompts that
  // were not found among them and not kept. Adds to `num_draws` where it succeeds.
  // Errors: those of SampleRollouts and of RolloutScorer::Score; Cancelled once `stop` is true.
  absl::StatusOr<SampleBatch> Make(int64_t first_step, int64_t& num_draws,
                                   const std::atomic<bool>& stop, BatchTimes& times) const;

 private:
  // Samples of the next prompts, rewarded.
  absl::StatusOr<std::vector<Rollout>> Draw(int64_t draw, const std::atomic<bool>& stop,
                                            BatchTimes& times) const;

  Parts parts_;
};

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_BATCH_MAKER_H_
