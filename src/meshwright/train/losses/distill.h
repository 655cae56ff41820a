// Distillation on a teacher's likeliest tokens.
#ifndef MESHWRIGHT_TRAIN_LOSSES_DISTILL_H_
#define MESHWRIGHT_TRAIN_LOSSES_DISTILL_H_

#include <vector>

#include "meshwright/train/loss.h"

namespace mw::train {

// Divergence of the student from a teacher at each token, on the K tokens that the batch names.
//
//   p = softmax_k(teacher_logprobs / temperature)
//   q = softmax_k(student's log-probs of teacher_ids / temperature)
//   forward: kl = sum_k p (log p - log q)      reverse: kl = sum_k q (log q - log p)
//   objective   = sum_bt mask (alpha temperature^2 kl + (1 - alpha) nll)
//   denominator = sum_bt mask
//
// Both are normalized over the K tokens: what either gives to other tokens does not enter kl,
// neither as a value nor as a gradient; distill/teacher_mass and distill/student_mass tell how
// much of either is left. nll is the cross-entropy of the batch's own targets at temperature 1,
// over the whole vocabulary. temperature^2 keeps gradients of one size, since those of kl fall
// with its inverse.
//
// The batch has teacher_ids s32 [B, T, K] besides, which are in the vocabulary, and
// teacher_logprobs f32 [B, T, K], finite and at temperature 1. A token of weight 0 takes no part
// whatever its values are.
//
// The metrics besides the loss, means over tokens: nll, distill/kl (without temperature^2),
// distill/teacher_mass and distill/student_mass.
//
// Precision: f32. Cost: beside the logits, K compare-and-add passes over them each way.
// Source: Hinton et al. 2015, arXiv:1503.02531 (temperature^2: section 2.1); reverse: Gu et al.
// 2023, arXiv:2306.08543.
class DistillLoss : public Loss {
 public:
  explicit DistillLoss(const DistillOptions& options) : options_(options) {}

  std::vector<MetricSpec> metrics() const override;
  std::vector<BatchTensorSpec> batch_tensors() const override;
  LossResult Build(const LossInputs& in) const override;
  // The teacher's log-probabilities of what counts are finite.
  absl::Status CheckBatch(const data::Batch& batch) const override;

 private:
  DistillOptions options_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSSES_DISTILL_H_
