// Advantages: how much better a sample did than the others of its prompt.
#ifndef MESHWRIGHT_RL_ADVANTAGES_H_
#define MESHWRIGHT_RL_ADVANTAGES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/train/loss_options.h"
#include "meshwright/train/rl_options.h"

namespace mw::rl {

using train::AdvantageOptions;

struct Advantages {
  std::vector<float> values;  // of each row
  std::vector<bool> kept;     // false: the row belongs to a dropped group
  int64_t num_groups = 0;
  int64_t num_zero_std_groups = 0;

  // 0 without groups.
  double zero_std_fraction() const;
};

// Advantages of rows by the rewards of their groups. Rows of one group have one id, wherever
// they are.
//
//   std:  (reward - mean) / (std + eps),  std = sqrt(sum (reward - mean)^2 / (G - ddof))
//   none: reward - mean
//   rloo: reward - mean of the group's other rewards = (reward - mean) G / (G - 1)
//
// with G rows in the group. Where all of a group's rewards are the same, a group of one row
// included, advantages are exactly 0.
//
// Precision: f64, the mean first and then the squares, so that rewards that nearly agree leave no
// residue of rounding. Errors: InvalidArgument for what Validate refuses, for other numbers of
// groups and rewards, and for a reward that is not finite, naming its row.
// Source: std, Shao et al. 2024, arXiv:2402.03300; none, Liu et al. 2025, arXiv:2503.20783; rloo,
// Ahmadian et al. 2024, arXiv:2402.14740.
absl::StatusOr<Advantages> ComputeAdvantages(std::span<const int64_t> group_ids,
                                             std::span<const double> rewards,
                                             const AdvantageOptions& options);

// Rewards with loss.kl_in=reward: each less kl_coef times the estimated divergence of its
// row's tokens from the reference.
//
//   reward[b] - kl_coef sum_t KlEstimate(old_log_probs[b, t], ref_log_probs[b, t])
//
// over tokens whose loss_mask is not 0; what the others hold does not matter. See train::KlEstimate
// for the estimators; k1's is the one whose gradient, through the rewards, is that of the
// divergence.
//
// Shapes: rewards [B]; the tensors f32 [B, T]. Precision: f64.
// Errors: InvalidArgument when shapes do not fit.
absl::StatusOr<std::vector<double>> RewardsLessKl(std::span<const double> rewards,
                                                  const HostTensor& old_log_probs_BT,
                                                  const HostTensor& ref_log_probs_BT,
                                                  const HostTensor& loss_mask_BT,
                                                  const train::GrpoOptions& options);

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_ADVANTAGES_H_
