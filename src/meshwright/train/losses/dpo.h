// Direct preference optimization.
#ifndef MESHWRIGHT_TRAIN_LOSSES_DPO_H_
#define MESHWRIGHT_TRAIN_LOSSES_DPO_H_

#include <cstdint>
#include <vector>

#include "meshwright/train/loss.h"

namespace mw::train {

// Preferences between two completions of a prompt.
//
// Rows come in pairs: row 2i is chosen, row 2i + 1 rejected. With sums over the tokens whose
// loss_mask is not 0 (it selects; a fraction counts as 1),
//
//   pi_r   = sum_t log_prob[r, t]          ref_r = sum_t ref_logprobs[r, t]
//   margin = (pi_chosen - ref_chosen) - (pi_rejected - ref_rejected)
//   sigmoid: -(1 - e) log_sigmoid(beta margin) - e log_sigmoid(-beta margin),  e = label_smoothing
//   hinge:   max(0, 1 - beta margin)
//   ipo:     (margin - 1 / (2 beta))^2, of means over a row's tokens in place of sums
//
// summed over pairs and divided by their number over the step. A pair of which either row has no
// token does not count. `reference_free` takes ref = 0.
//
// The batch has ref_logprobs f32 [B, T] besides: the reference's log-probability of each target.
//
// The metrics, means over pairs, are named as TRL does: rewards/chosen and rewards/rejected,
// beta (pi - ref) of each; rewards/accuracies, how often the former is the greater;
// rewards/margins, their difference; logps/chosen and logps/rejected, pi. With ipo all of them
// are of means over tokens.
//
// Precision: f32. log_sigmoid(x) = min(x, 0) - log1p(exp(-|x|)), finite for every finite x.
// Source: Rafailov et al. 2023, arXiv:2305.18290; label smoothing: Mitchell 2023, "A note on DPO
// with noisy preferences"; hinge: Zhao et al. 2023, arXiv:2305.10425; ipo: Azar et al. 2023,
// arXiv:2310.12036, eq. 17, with the means over tokens of TRL's DPOTrainer.
class DpoLoss : public Loss {
 public:
  explicit DpoLoss(const DpoOptions& options) : options_(options) {}

  std::vector<MetricSpec> metrics() const override;
  std::vector<BatchTensorSpec> batch_tensors() const override;
  LossResult Build(const LossInputs& in) const override;
  // A pair is never cut, neither between micro-batches nor between devices.
  absl::Status CheckRows(int64_t num_rows, int64_t num_shards) const override;
  // The reference's log-probabilities of what counts are finite.
  absl::Status CheckBatch(const data::Batch& batch) const override;

 private:
  DpoOptions options_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSSES_DPO_H_
