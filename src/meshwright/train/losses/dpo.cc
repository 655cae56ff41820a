#include "meshwright/train/losses/dpo.h"

#include <fmt/format.h>

#include "meshwright/base/counted.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/core/graph_error.h"
#include "meshwright/ops/abs.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/and.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/log1p.h"
#include "meshwright/ops/max.h"
#include "meshwright/ops/min.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/sub.h"
#include "meshwright/train/losses/given_values.h"

namespace mw::train {
namespace {

using graph::Value;

constexpr char kRefLogProbs[] = "ref_logprobs";

Value LogSigmoid(Value x) {
  return ops::Sub(ops::Minimum(x, 0.0), ops::Log1p(ops::Exp(ops::Neg(ops::Abs(x)))));
}

// A value of each row [B], by pair [B / 2].
struct Pairs {
  Value chosen;
  Value rejected;

  explicit Pairs(Value rows) {
    const int64_t pairs = rows.dim(0) / 2;
    const Value both = ops::Reshape(rows, {pairs, 2});
    chosen = ops::Reshape(ops::SliceInDim(both, 1, 0, 1), {pairs});
    rejected = ops::Reshape(ops::SliceInDim(both, 1, 1, 2), {pairs});
  }
};

}  // namespace

std::vector<MetricSpec> DpoLoss::metrics() const {
  return {{.name = "loss"},
          {.name = "rewards/chosen"},
          {.name = "rewards/rejected"},
          {.name = "rewards/accuracies"},
          {.name = "rewards/margins"},
          {.name = "logps/chosen"},
          {.name = "logps/rejected"}};
}

std::vector<BatchTensorSpec> DpoLoss::batch_tensors() const {
  if (options_.reference_free) return {};
  return {{kRefLogProbs, DType::kF32}};
}

absl::Status DpoLoss::CheckBatch(const data::Batch& batch) const {
  for (const BatchTensorSpec& spec : batch_tensors()) {
    MW_RETURN_IF_ERROR(CheckGivenValues(batch, spec));
  }
  return absl::OkStatus();
}

LossResult DpoLoss::Build(const LossInputs& in) const {
  if (in.tokens_BT.dim(0) % 2 != 0) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "dpo",
                     std::string(CheckRows(in.tokens_BT.dim(0), 1).message()),
                     in.tokens_BT.graph().scope());
  }
  const Value keep_BT = ops::NotEqual(in.loss_mask_BT, 0.0);
  const Value tokens_B = ops::ReduceSum(ops::Convert(keep_BT, DType::kF32), {1});
  const auto of_rows = [&](Value log_prob_BT) {
    const Value kept = ops::Select(keep_BT, log_prob_BT, ops::FullLike(log_prob_BT, 0));
    const Value sum = ops::ReduceSum(kept, {1});
    return options_.loss == "ipo" ? ops::Div(sum, ops::Maximum(tokens_B, 1.0)) : sum;
  };
  const Value pi_B = of_rows(in.LogProbs().log_prob);
  const Value log_ratio_B = options_.reference_free
                                ? pi_B
                                : ops::Sub(pi_B, of_rows(in.extras.find(kRefLogProbs)->second));
  const Pairs log_ratio(log_ratio_B);
  const Value margin = ops::Sub(log_ratio.chosen, log_ratio.rejected);
  const Value scaled = ops::Mul(margin, options_.beta);

  Value losses;
  if (options_.loss == "sigmoid") {
    losses = ops::Mul(LogSigmoid(scaled), -(1 - options_.label_smoothing));
    if (options_.label_smoothing != 0) {
      const Value swapped = ops::Mul(LogSigmoid(ops::Neg(scaled)), -options_.label_smoothing);
      losses = ops::Add(losses, swapped);
    }
  } else if (options_.loss == "hinge") {
    losses = ops::Maximum(ops::Add(ops::Neg(scaled), 1.0), 0.0);
  } else {
    losses = ops::Square(ops::Add(margin, -1 / (2 * options_.beta)));
  }

  const Pairs tokens(tokens_B);
  const Value counts =
      ops::And(ops::Greater(tokens.chosen, 0.0), ops::Greater(tokens.rejected, 0.0));
  const Value num_pairs = ops::ReduceSum(ops::Convert(counts, DType::kF32), {0});
  const auto total = [&](Value of_pair) -> WeightedMetric {
    const Value kept = ops::Select(counts, of_pair, ops::FullLike(of_pair, 0));
    return {ops::ReduceSum(kept, {0}), num_pairs};
  };
  const Value better = ops::Greater(log_ratio.chosen, log_ratio.rejected);
  const Pairs log_prob(pi_B);
  LossResult result;
  result.metrics = {total(losses),
                    total(ops::Mul(log_ratio.chosen, options_.beta)),
                    total(ops::Mul(log_ratio.rejected, options_.beta)),
                    total(ops::Convert(better, DType::kF32)),
                    total(scaled),
                    total(log_prob.chosen),
                    total(log_prob.rejected)};
  return result;
}

absl::Status DpoLoss::CheckRows(int64_t num_rows, int64_t num_shards) const {
  if (num_rows % (2 * num_shards) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "loss.name=dpo takes pairs of rows, chosen before rejected, which stay in one micro-batch "
      "and on one device: {} rows on {} are not whole pairs; give a multiple of {}",
      num_rows, Counted(num_shards, "device"), 2 * num_shards));
}

}  // namespace mw::train
