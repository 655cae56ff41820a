#include "meshwright/train/loss.h"

#include <fmt/format.h>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/float32.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/nn/lm_head.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/reduce.h"

namespace mw::train {

using graph::Value;

absl::Status LossOptions::Validate() const {
  if (name == "grpo" || name == "dpo" || name == "distill") {
    return absl::UnimplementedError(
        fmt::format("loss.name {} is not available; it can be sft", name));
  }
  if (name != "sft") {
    return absl::InvalidArgumentError(
        fmt::format("loss.name \"{}\" is unknown; it can be sft", Excerpt(name)));
  }
  if (!(z_loss >= 0)) {
    return absl::InvalidArgumentError(fmt::format("loss.z_loss {} must not be negative", z_loss));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("loss.z_loss", z_loss));
  if (label_smoothing != 0) {
    return absl::UnimplementedError(
        fmt::format("loss.label_smoothing {} is not available; it can be 0", label_smoothing));
  }
  if (head_chunk_tokens < 0) {
    return absl::InvalidArgumentError(fmt::format(
        "head_chunk_tokens {} must be positive, or 0 for no chunks", head_chunk_tokens));
  }
  return absl::OkStatus();
}

LossSums BuildSftLoss(Value hidden_BTD, Value head_VD, Value targets_BT, Value mask_BT,
                      const LossOptions& options, const nn::ComputeOptions& compute) {
  nn::HeadOptions head;
  head.compute = compute;
  head.chunk_tokens = options.head_chunk_tokens;
  const nn::TokenLogProbs tokens =
      nn::ComputeTokenLogProbs(hidden_BTD, head_VD, targets_BT, mask_BT, head);
  LossSums sums;
  sums.nll = ops::Neg(ops::ReduceSum(ops::Mul(mask_BT, tokens.log_prob), {0, 1}));
  sums.z_loss = ops::ReduceSum(ops::Mul(mask_BT, ops::Square(tokens.log_sum_exp)), {0, 1});
  sums.objective =
      options.z_loss == 0 ? sums.nll : ops::Add(sums.nll, ops::Mul(sums.z_loss, options.z_loss));
  sums.denominator = ops::ReduceSum(mask_BT, {0, 1});
  return sums;
}

}  // namespace mw::train
