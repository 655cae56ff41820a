// Supervised fine-tuning.
#ifndef MESHWRIGHT_TRAIN_LOSSES_SFT_H_
#define MESHWRIGHT_TRAIN_LOSSES_SFT_H_

#include <vector>

#include "meshwright/train/loss.h"

namespace mw::train {

// Cross-entropy of the next token.
//
//   nll         = sum_bt mask[b, t] * -log_prob[b, t]
//   smooth      = sum_bt mask[b, t] * -mean_v log_prob_of_v[b, t]
//   z_loss      = sum_bt mask[b, t] * log_sum_exp[b, t]^2
//   objective   = (1 - label_smoothing) * nll + label_smoothing * smooth + z * z_loss
//   denominator = sum_bt mask[b, t]
//
// All terms are normalized by the one denominator, the (weighted) tokens of the whole step. A
// mask may hold fractional weights; a token of weight 0 takes no part whatever its values are.
// The metrics are loss, and where the objective is not the nll alone, nll; z_loss where it has
// a coefficient.
// Source: label smoothing as torch's CrossEntropyLoss, Szegedy et al. 2016, arXiv:1512.00567;
// z-loss, Chowdhery et al. 2022, arXiv:2204.02311.
class SftLoss : public Loss {
 public:
  explicit SftLoss(const LossOptions& options) : options_(options) {}

  std::vector<MetricSpec> metrics() const override;
  LossResult Build(const LossInputs& in) const override;

 private:
  bool IsNll() const { return options_.z_loss == 0 && options_.label_smoothing == 0; }
  LossOptions options_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSSES_SFT_H_
