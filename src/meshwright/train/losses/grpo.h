// Policy gradients: GRPO and its relatives.
#ifndef MESHWRIGHT_TRAIN_LOSSES_GRPO_H_
#define MESHWRIGHT_TRAIN_LOSSES_GRPO_H_

#include <string>
#include <vector>

#include "meshwright/graph/graph.h"
#include "meshwright/train/loss.h"

namespace mw::train {

// Estimates, from tokens drawn from the policy, of its divergence from a reference.
//
//   k1: log_prob - reference
//   k2: (log_prob - reference)^2 / 2
//   k3: exp(d) - d - 1,  d = reference - log_prob, held within ±bound
//
// As values, k1 and k3 have the divergence as their mean. As terms of a loss, k1 has a gradient
// whose mean is 0, k2 one whose mean is that of the divergence, k3 one whose mean is that of
// the divergence the other way round, KL(reference || policy).
//
// Shapes (global): both f32 of the same dims, which it returns.
// REQUIRES: estimator is k1, k2 or k3.
// Source: Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.html.
graph::Value KlEstimate(graph::Value log_prob, graph::Value reference, const std::string& estimator,
                        double bound);

// Policy gradients with a sequence's or a token's advantage. A row holds one sequence; with
// max_segments = S > 1 it holds up to S, those of its segment_ids 1 … S, and each is what a row of
// its own would be: values and gradients do not depend on how sequences share rows.
//
// With lp the log-probability of a target at `temperature`, A its advantage, n_r the tokens of
// sequence r whose loss_mask is not 0 (it selects; a fraction counts as 1) and sg without gradient:
//
//   ratio = exp(lp - old_logprobs)                           grpo, cispo
//           exp(sum_t (lp - old_logprobs) / n_r)             gspo
//           sg(gspo's) exp(lp - sg(lp))                      gspo-token
//   policy = -min(ratio A, clip(ratio) A)                    grpo, gspo, gspo-token
//            where A < 0: no more than -dual_clip A
//            -sg(clip(ratio)) A lp                           cispo
//            -A lp                                           reinforce
//   clip(ratio) = min(max(ratio, 1 - clip_low), 1 + clip_high)
//   weight = min(exp(old_logprobs - sampler_logprobs), importance_cap), of the sequence's sum with
//            importance=sequence; 1 with none
//   loss of a token = sg(weight) policy + kl_coef KlEstimate(lp, ref_logprobs)
//
//   aggregation      unreduced sum                denominator
//   token-mean       sum of tokens                tokens
//   sequence-mean    sum over r of sum / n_r      sequences with n_r > 0
//   sequence-sum     sum of tokens                sequences with n_r > 0
//   constant         sum of tokens                sequences * norm_length
//
// A difference of log-probs goes into exp no further than ±log_ratio_bound, beyond which it has
// no gradient. kl_in=reward leaves the KL out of the loss: the advantages hold it.
//
// The batch has besides: advantages f32 [B], of packed rows [B, S], of segment s at s - 1, or [B,
// T] with has_token_advantages; old_logprobs f32 [B, T], of the policy before the update, unless
// has_old_log_probs is false, when they are sg(lp) and ratios 1; ref_logprobs with kl_coef;
// sampler_logprobs with importance or has_sampler_log_probs. All of them at `temperature`. Where
// the mask is 0 they may be anything.
//
// Metrics besides the loss: rl/policy_loss, the loss without KL, where it has one. Means over
// tokens: rl/ratio_mean, of the ratios before they are clipped (rl/ratio_max is the largest);
// rl/clip_low_fraction, rl/clip_high_fraction and rl/dual_clip_fraction, the share of tokens whose
// ratio was replaced by that bound; rl/kl; rl/entropy; and of the trainer's old_logprobs against
// the sampler's rl/mismatch_mean, of |old - sampler| (rl/mismatch_max is the largest),
// rl/mismatch_kl, k3 of KL(sampler || trainer), rl/importance_mean and
// rl/importance_capped_fraction.
//
// Sharding: rows stay where they are. Precision: f32. Cost: of packed rows, for each sum over
// sequences a pass over [B, T, S] that is nowhere kept.
// Source: grpo: Shao et al. 2024, arXiv:2402.03300, clip after Schulman et al. 2017,
// arXiv:1707.06347; different bounds and token-mean: DAPO, Yu et al. 2025, arXiv:2503.14476;
// dual_clip: Ye et al. 2020, arXiv:1912.09729; gspo, gspo-token: Zheng et al. 2025,
// arXiv:2507.18071; cispo: MiniMax 2025, arXiv:2506.13585; constant: Dr. GRPO, Liu et al. 2025,
// arXiv:2503.20783; reinforce with leave-one-out advantages: Ahmadian et al. 2024,
// arXiv:2402.14740; truncated importance: Yao et al. 2025, "Your efficient RL framework secretly
// brings you off-policy RL training".
class GrpoLoss : public Loss {
 public:
  explicit GrpoLoss(const GrpoOptions& options) : options_(options) {}

  std::vector<MetricSpec> metrics() const override;
  std::vector<BatchTensorSpec> batch_tensors() const override;
  LossResult Build(const LossInputs& in) const override;
  // A row has no more sequences than max_segments, and what counts is finite.
  absl::Status CheckBatch(const data::Batch& batch) const override;

 private:
  // Of advantages that are not by token.
  absl::Status CheckSequenceAdvantages(const data::Batch& batch) const;
  absl::Status CheckSegments(const data::Batch& batch) const;
  bool Clips() const { return options_.algorithm != "reinforce"; }
  bool HasDualClip() const { return options_.dual_clip != 0; }
  bool HasKl() const { return options_.kl_coef != 0; }
  bool KlInLoss() const { return HasKl() && options_.kl_in == "loss"; }
  bool Corrects() const { return options_.importance != "none"; }
  bool HasSampler() const { return Corrects() || options_.has_sampler_log_probs; }

  GrpoOptions options_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSSES_GRPO_H_
