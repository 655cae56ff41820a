#include "meshwright/train/losses/sft.h"

#include <optional>

#include "meshwright/ops/add.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/reduce.h"

namespace mw::train {

using graph::Value;

std::vector<MetricSpec> SftLoss::metrics() const {
  std::vector<MetricSpec> specs = {{.name = "loss", .is_nll = IsNll()}};
  if (!IsNll()) specs.push_back({.name = "nll", .is_nll = true});
  if (options_.z_loss != 0) specs.push_back({.name = "z_loss"});
  return specs;
}

LossResult SftLoss::Build(const LossInputs& in) const {
  nn::HeadOptions head;
  head.mean_log_prob = options_.label_smoothing != 0;
  const nn::TokenLogProbs tokens = in.LogProbs(head);
  const auto total = [&](Value per_token) {
    return ops::ReduceSum(ops::Mul(in.loss_mask_BT, per_token), {0, 1});
  };
  const Value denominator = ops::ReduceSum(in.loss_mask_BT, {0, 1});
  const Value nll = ops::Neg(total(tokens.log_prob));
  Value objective = nll;
  if (head.mean_log_prob) {
    const Value smooth = ops::Neg(total(*tokens.mean_log_prob));
    objective = ops::Add(ops::Mul(nll, 1 - options_.label_smoothing),
                         ops::Mul(smooth, options_.label_smoothing));
  }
  std::optional<Value> z_loss;
  if (options_.z_loss != 0) {
    z_loss = total(ops::Square(tokens.log_sum_exp));
    objective = ops::Add(objective, ops::Mul(*z_loss, options_.z_loss));
  }
  LossResult result;
  result.metrics = {{objective, denominator}};
  if (!IsNll()) result.metrics.push_back({nll, denominator});
  if (z_loss) result.metrics.push_back({*z_loss, denominator});
  return result;
}

}  // namespace mw::train
