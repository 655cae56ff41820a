#include "meshwright/train/loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/float32.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/select.h"
#include "meshwright/train/losses/sft.h"

namespace mw::train {

using graph::Value;

const std::vector<std::string>& LossNames() {
  static const auto* const names = new std::vector<std::string>{"sft"};
  return *names;
}

absl::Status LossOptions::Validate() const {
  const std::vector<std::string>& names = LossNames();
  if (name == "grpo" || name == "dpo" || name == "distill") {
    return absl::UnimplementedError(
        fmt::format("loss.name {} is not available; it can be {}", name, fmt::join(names, ", ")));
  }
  if (std::ranges::find(names, name) == names.end()) {
    return absl::InvalidArgumentError(fmt::format("loss.name \"{}\" is unknown{}; it can be {}",
                                                  Excerpt(name), NearestNote(name, names),
                                                  fmt::join(names, ", ")));
  }
  if (!(z_loss >= 0)) {
    return absl::InvalidArgumentError(fmt::format("loss.z_loss {} must not be negative", z_loss));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("loss.z_loss", z_loss));
  if (!(label_smoothing >= 0 && label_smoothing < 1)) {
    return absl::InvalidArgumentError(
        fmt::format("loss.label_smoothing {} must be at least 0 and less than 1", label_smoothing));
  }
  if (head_chunk_tokens < 0) {
    return absl::InvalidArgumentError(fmt::format(
        "head_chunk_tokens {} must be positive, or 0 for no chunks", head_chunk_tokens));
  }
  return absl::OkStatus();
}

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
  return std::make_shared<const SftLoss>(options);
}

}  // namespace mw::train
