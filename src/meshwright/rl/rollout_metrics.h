// What records tell of rollouts.
#ifndef MESHWRIGHT_RL_ROLLOUT_METRICS_H_
#define MESHWRIGHT_RL_ROLLOUT_METRICS_H_

#include <string>
#include <vector>

#include "meshwright/rl/rollouts.h"
#include "meshwright/train/metrics.h"

namespace mw::rl {

// Of samples that are learned: rl/reward_mean, rl/reward_std (of all of them, n - 1), with several
// rewards rl/reward/NAME before their weights, rl/completion_length_mean, _min and _max in tokens,
// rl/truncated_fraction, the share that max_new_tokens cut, rl/num_samples.
// REQUIRES: there is one.
void AddRolloutMetrics(const std::vector<Rollout>& rollouts, const std::vector<std::string>& names,
                       train::MetricRecord& record);

// Of samples that are measured: eval/reward, eval/reward_stderr, the standard error of that mean
// (0 of one sample), eval/num_samples, and eval/reward/NAME, eval/completion_length_mean,
// eval/truncated_fraction as above.
// REQUIRES: there is one.
void AddEvalMetrics(const std::vector<Rollout>& rollouts, const std::vector<std::string>& names,
                    train::MetricRecord& record);

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_ROLLOUT_METRICS_H_
