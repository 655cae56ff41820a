#include "meshwright/train/loss.h"

#include "meshwright/base/status_macros.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/select.h"
#include "meshwright/train/losses/distill.h"
#include "meshwright/train/losses/dpo.h"
#include "meshwright/train/losses/grpo.h"
#include "meshwright/train/losses/sft.h"

namespace mw::train {

using graph::Value;

TensorType BatchTensorSpec::Type(int64_t num_rows, int64_t num_tokens) const {
  Dims dims = {num_rows};
  if (per_token) dims.push_back(num_tokens);
  dims.insert(dims.end(), trailing.begin(), trailing.end());
  return TensorType(dtype, dims);
}

nn::TokenLogProbs LossInputs::LogProbs(nn::HeadOptions options) const {
  options.compute = compute;
  options.chunk_tokens = head_chunk_tokens;
  return nn::ComputeTokenLogProbs(hidden_BTD, head_VD, targets_BT, loss_mask_BT, options);
}

absl::Status Loss::CheckRows(int64_t, int64_t) const { return absl::OkStatus(); }
absl::Status Loss::CheckBatch(const data::Batch&) const { return absl::OkStatus(); }

WeightedMetric AddTerm(WeightedMetric objective, WeightedMetric term, double coefficient) {
  const Value zero = ops::FullLike(term.denominator, 0);
  const Value one = ops::FullLike(term.denominator, 1);
  const Value has_weight = ops::Greater(term.denominator, 0.0);
  // The divisor is replaced too: 1 / 0 would reach the gradient as 0 * inf.
  const Value divisor = ops::Select(has_weight, term.denominator, one);
  const Value mean = ops::Select(has_weight, ops::Div(term.unreduced_sum, divisor), zero);
  const Value share = ops::Mul(ops::Mul(mean, objective.denominator), coefficient);
  return {ops::Add(objective.unreduced_sum, share), objective.denominator};
}

absl::StatusOr<std::shared_ptr<const Loss>> CreateLoss(const LossOptions& options) {
  MW_RETURN_IF_ERROR(options.Validate());
  if (options.name == "dpo") return std::make_shared<const DpoLoss>(options.dpo);
  if (options.name == "distill") return std::make_shared<const DistillLoss>(options.distill);
  if (options.name == "grpo") return std::make_shared<const GrpoLoss>(options.grpo);
  return std::make_shared<const SftLoss>(options);
}

}  // namespace mw::train
