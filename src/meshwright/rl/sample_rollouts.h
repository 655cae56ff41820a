// Sampling: completions of prompts, and their rewards.
#ifndef MESHWRIGHT_RL_SAMPLE_ROLLOUTS_H_
#define MESHWRIGHT_RL_SAMPLE_ROLLOUTS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/rl/batch_times.h"
#include "meshwright/rl/policy_sampler.h"
#include "meshwright/rl/prompts.h"
#include "meshwright/rl/reward.h"
#include "meshwright/rl/rollouts.h"

namespace mw::rl {

struct SampleOptions {
  int64_t num_samples = 1;  // of each prompt
  double temperature = 1;
  uint64_t seed = 0;
};

// The seed of one stream of samples: `seed`'s streams are apart from each other and from those of
// other seeds. The finalizer of SplitMix64 (Steele, Lea, Flood 2014) of both.
uint64_t MixSeed(uint64_t seed, uint64_t stream);

// Samples of the rows `rows` of `prompts` with the newest weights, rewarded. The group of a rollout
// is its prompt's place in `rows`; its time is added to `times`.
// Errors: those of PolicySampler::Generate and of RewardSum::Score; Cancelled once `stop` is true.
absl::StatusOr<std::vector<Rollout>> SampleRollouts(PolicySampler& policy, RewardSum& rewards,
                                                    const Prompts& prompts,
                                                    const std::vector<int64_t>& rows,
                                                    const SampleOptions& options,
                                                    const std::atomic<bool>& stop,
                                                    BatchTimes& times);

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_SAMPLE_ROLLOUTS_H_
