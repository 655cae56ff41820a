#include "meshwright/train/losses/distill.h"

#include "meshwright/base/status_macros.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/stop_gradient.h"
#include "meshwright/ops/sub.h"
#include "meshwright/train/losses/given_values.h"

namespace mw::train {
namespace {

using graph::Value;

// Over the last dim.
Value LogSoftmax(Value x) {
  const Value shift = ops::StopGradient(ops::ReduceMax(x, {-1}, /*keep_dims=*/true));
  const Value shifted = ops::Sub(x, ops::BroadcastLike(shift, x));
  const Value total = ops::ReduceSum(ops::Exp(shifted), {-1}, /*keep_dims=*/true);
  return ops::Sub(shifted, ops::BroadcastLike(ops::Log(total), x));
}

}  // namespace

std::vector<MetricSpec> DistillLoss::metrics() const {
  return {{.name = "loss"},
          {.name = "nll", .is_nll = true},
          {.name = "distill/kl"},
          {.name = "distill/teacher_mass"},
          {.name = "distill/student_mass"}};
}

std::vector<BatchTensorSpec> DistillLoss::batch_tensors() const {
  return {{"teacher_ids", DType::kS32, /*per_token=*/true, {options_.top_k}},
          {"teacher_logprobs", DType::kF32, /*per_token=*/true, {options_.top_k}}};
}

absl::Status DistillLoss::CheckBatch(const data::Batch& batch) const {
  for (const BatchTensorSpec& spec : batch_tensors()) {
    if (spec.dtype != DType::kF32) continue;
    MW_RETURN_IF_ERROR(CheckGivenValues(batch, spec));
  }
  return absl::OkStatus();
}

LossResult DistillLoss::Build(const LossInputs& in) const {
  nn::HeadOptions head;
  head.ids_BTK = in.extras.find("teacher_ids")->second;
  const nn::TokenLogProbs tokens = in.LogProbs(head);
  const Value student_BTK = *tokens.log_prob_of_ids;  // 0 where the mask is
  const Value given_BTK = in.extras.find("teacher_logprobs")->second;
  const Value keep_BT = ops::NotEqual(in.loss_mask_BT, 0.0);
  const Value teacher_BTK = ops::Select(ops::BroadcastInDim(keep_BT, given_BTK.dims(), {0, 1}),
                                        given_BTK, ops::FullLike(given_BTK, 0));

  const double inverse = 1.0 / options_.temperature;
  const Value log_p = LogSoftmax(ops::Mul(teacher_BTK, inverse));
  const Value log_q = LogSoftmax(ops::Mul(student_BTK, inverse));
  const bool forward = options_.kl == "forward";
  const Value from = forward ? log_p : log_q;
  const Value to = forward ? log_q : log_p;
  const Value kl_BT = ops::ReduceSum(ops::Mul(ops::Exp(from), ops::Sub(from, to)), {-1});

  const Value denominator = ops::ReduceSum(in.loss_mask_BT, {0, 1});
  const auto total = [&](Value per_token) {
    return ops::ReduceSum(ops::Mul(in.loss_mask_BT, per_token), {0, 1});
  };
  const auto mass = [&](Value log_prob_BTK) {
    return total(ops::ReduceSum(ops::Exp(log_prob_BTK), {-1}));
  };
  const Value nll = ops::Neg(total(tokens.log_prob));
  const Value kl = total(kl_BT);
  const double weight = options_.alpha * options_.temperature * options_.temperature;
  Value objective = ops::Mul(kl, weight);
  if (options_.alpha != 1) objective = ops::Add(objective, ops::Mul(nll, 1 - options_.alpha));
  LossResult result;
  result.metrics = {{objective, denominator},
                    {nll, denominator},
                    {kl, denominator},
                    {mass(teacher_BTK), denominator},
                    {mass(student_BTK), denominator}};
  return result;
}

}  // namespace mw::train
