#include "meshwright/train/losses/grpo.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "meshwright/base/counted.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/data/batch.h"
#include "meshwright/ops/abs.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/and.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/max.h"
#include "meshwright/ops/min.h"
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

constexpr char kAdvantages[] = "advantages";
constexpr char kOldLogProbs[] = "old_logprobs";
constexpr char kRefLogProbs[] = "ref_logprobs";
constexpr char kSamplerLogProbs[] = "sampler_logprobs";

Value ToFloat(Value pred) { return ops::Convert(pred, DType::kF32); }

// Which tokens count, and sums over them and over their sequences. A value of each sequence is [B]
// where a row has one, else [B, S]: in names, _R.
class Tokens {
 public:
  Tokens(Value mask_BT, Value segment_ids_BT, int64_t max_segments)
      : segment_ids_BT_(segment_ids_BT), keep_BT_(ops::NotEqual(mask_BT, 0.0)) {
    if (max_segments > 1) {
      const Dims dims = {mask_BT.dim(0), mask_BT.dim(1), max_segments};
      const Value number_S =
          ops::Add(ops::Iota(mask_BT.graph(), DType::kS32, {max_segments}, 0), 1.0);
      is_in_BTS_ = ops::Equal(ops::BroadcastInDim(segment_ids_BT, dims, {0, 1}),
                              ops::BroadcastInDim(number_S, dims, {2}));
    }
    count_R_ = SequenceSum(ToFloat(keep_BT_));
    count_ = SumOfSequences(count_R_);
  }

  // Selected, as what does not count may be anything.
  Value Kept(Value v_BT) const { return ops::Select(keep_BT_, v_BT, ops::FullLike(v_BT, 0)); }
  Value SequenceSum(Value v_BT) const {
    const Value kept_BT = Kept(v_BT);
    if (!is_packed()) return ops::ReduceSum(kept_BT, {1});
    return ops::ReduceSum(InSequences(kept_BT, {0, 1}), {1});
  }
  Value SequenceMean(Value v_BT) const {
    return ops::Div(SequenceSum(v_BT), ops::Maximum(count_R_, 1.0));
  }
  Value Sum(Value v_BT) const { return ops::ReduceSum(ops::ReduceSum(Kept(v_BT), {1}), {0}); }
  // Each sequence's value at its tokens; 0 where it has none that counts.
  Value OfSequences(Value v_R) const {
    const Value kept_R = ops::Select(ops::Greater(count_R_, 0.0), v_R, ops::FullLike(v_R, 0));
    if (!is_packed()) return ops::BroadcastInDim(kept_R, keep_BT_.dims(), {0});
    return ops::ReduceSum(InSequences(kept_R, {0, 2}), {2});
  }
  WeightedMetric Mean(Value v_BT) const { return {Sum(v_BT), count_}; }
  // REQUIRES: v_BT is not negative where it counts.
  WeightedMetric Max(Value v_BT) const {
    return {ops::ReduceMax(ops::StopGradient(Kept(v_BT)), {0, 1}), count_};
  }
  WeightedMetric Fraction(Value pred_BT) const { return Mean(ToFloat(pred_BT)); }

  Value SumOfSequences(Value v_R) const {
    return ops::ReduceSum(v_R, is_packed() ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0});
  }
  // Those with a token that counts, and all.
  Value num_learned() const { return SumOfSequences(ToFloat(ops::Greater(count_R_, 0.0))); }
  // A row of padding has none, or the loss would depend on how a batch is filled up.
  Value num_sequences() const {
    const Value is_in = is_packed() ? *is_in_BTS_ : ops::NotEqual(segment_ids_BT_, 0.0);
    return SumOfSequences(ops::ReduceMax(ToFloat(is_in), {1}));
  }

 private:
  bool is_packed() const { return is_in_BTS_.has_value(); }
  // [B, T, S] of a value that lacks one of these dims: itself in its sequence, elsewhere 0.
  Value InSequences(Value v, const std::vector<int64_t>& dims) const {
    const Value v_BTS = ops::BroadcastInDim(v, is_in_BTS_->dims(), dims);
    return ops::Select(*is_in_BTS_, v_BTS, ops::FullLike(v_BTS, 0));
  }

  Value segment_ids_BT_;
  Value keep_BT_;
  std::optional<Value> is_in_BTS_;  // pred; none where rows have one sequence
  Value count_R_;
  Value count_;
};

// What the policy's part of a token's loss is, and where its ratio was replaced by a bound.
struct Policy {
  Value loss_BT;
  Value low_BT = {};   // pred
  Value high_BT = {};  // pred
  Value dual_BT = {};  // pred
};

// -min(ratio A, clip(ratio) A), no more than -dual_clip A where A < 0: as one ratio, replaced by
// the bound that it is beyond.
Policy Surrogate(Value ratio, Value advantage, const GrpoOptions& options) {
  const Value gains = ops::Greater(advantage, 0.0);
  const Value loses = ops::Less(advantage, 0.0);
  const double low = 1 - options.clip_low;
  const double high = 1 + options.clip_high;
  Policy policy;
  policy.high_BT = ops::And(gains, ops::Greater(ratio, high));
  policy.low_BT = ops::And(loses, ops::Less(ratio, low));
  Value bounded = ops::Select(policy.high_BT, ops::FullLike(ratio, high), ratio);
  bounded = ops::Select(policy.low_BT, ops::FullLike(ratio, low), bounded);
  if (options.dual_clip != 0) {
    policy.dual_BT = ops::And(loses, ops::Greater(ratio, options.dual_clip));
    bounded = ops::Select(policy.dual_BT, ops::FullLike(ratio, options.dual_clip), bounded);
  }
  policy.loss_BT = ops::Neg(ops::Mul(bounded, advantage));
  return policy;
}

Policy Cispo(Value ratio, Value advantage, Value log_prob, const GrpoOptions& options) {
  const double low = 1 - options.clip_low;
  const double high = 1 + options.clip_high;
  const Value weight = ops::StopGradient(ops::Clamp(ratio, low, high));
  Policy policy;
  policy.low_BT = ops::Less(ratio, low);
  policy.high_BT = ops::Greater(ratio, high);
  policy.loss_BT = ops::Neg(ops::Mul(ops::Mul(weight, advantage), log_prob));
  return policy;
}

// Of the whole batch, by `aggregation`.
WeightedMetric Aggregate(const Tokens& tokens, Value loss_BT, const GrpoOptions& options) {
  if (options.aggregation == "token-mean") return tokens.Mean(loss_BT);
  if (options.aggregation == "sequence-mean") {
    return {tokens.SumOfSequences(tokens.SequenceMean(loss_BT)), tokens.num_learned()};
  }
  if (options.aggregation == "sequence-sum") return {tokens.Sum(loss_BT), tokens.num_learned()};
  return {tokens.Sum(loss_BT),
          ops::Mul(tokens.num_sequences(), static_cast<double>(options.norm_length))};
}

}  // namespace

Value KlEstimate(Value log_prob, Value reference, const std::string& estimator, double bound) {
  const Value difference = ops::Sub(reference, log_prob);
  if (estimator == "k1") return ops::Neg(difference);
  if (estimator == "k2") return ops::Mul(ops::Square(difference), 0.5);
  const Value d = ops::Clamp(difference, -bound, bound);
  return ops::Add(ops::Sub(ops::Exp(d), d), -1.0);
}

std::vector<MetricSpec> GrpoLoss::metrics() const {
  std::vector<MetricSpec> specs = {{.name = "loss"}};
  if (KlInLoss()) specs.push_back({.name = "rl/policy_loss"});
  specs.push_back({.name = "rl/ratio_mean"});
  specs.push_back({.name = "rl/ratio_max", .is_max = true});
  if (Clips()) {
    specs.push_back({.name = "rl/clip_low_fraction"});
    specs.push_back({.name = "rl/clip_high_fraction"});
  }
  if (HasDualClip()) specs.push_back({.name = "rl/dual_clip_fraction"});
  if (HasKl()) specs.push_back({.name = "rl/kl"});
  specs.push_back({.name = "rl/entropy"});
  if (HasSampler()) {
    specs.push_back({.name = "rl/mismatch_mean"});
    specs.push_back({.name = "rl/mismatch_max", .is_max = true});
    specs.push_back({.name = "rl/mismatch_kl"});
  }
  if (Corrects()) {
    specs.push_back({.name = "rl/importance_mean"});
    specs.push_back({.name = "rl/importance_capped_fraction"});
  }
  return specs;
}

std::vector<BatchTensorSpec> GrpoLoss::batch_tensors() const {
  BatchTensorSpec advantages = {kAdvantages, DType::kF32,
                                /*per_token=*/options_.has_token_advantages};
  if (!advantages.per_token && options_.max_segments > 1) {
    advantages.trailing = {options_.max_segments};
  }
  std::vector<BatchTensorSpec> tensors = {std::move(advantages)};
  if (options_.has_old_log_probs) tensors.push_back({kOldLogProbs, DType::kF32});
  if (HasKl()) tensors.push_back({kRefLogProbs, DType::kF32});
  if (HasSampler()) tensors.push_back({kSamplerLogProbs, DType::kF32});
  return tensors;
}

absl::Status GrpoLoss::CheckBatch(const data::Batch& batch) const {
  MW_RETURN_IF_ERROR(CheckSegments(batch));
  for (const BatchTensorSpec& spec : batch_tensors()) {
    if (!spec.per_token) {
      MW_RETURN_IF_ERROR(CheckSequenceAdvantages(batch));
      continue;
    }
    MW_RETURN_IF_ERROR(CheckGivenValues(batch, spec));
  }
  return absl::OkStatus();
}

absl::Status GrpoLoss::CheckSequenceAdvantages(const data::Batch& batch) const {
  const auto segments = batch.segment_ids.as<int32_t>();
  const auto mask = batch.loss_mask.as<float>();
  const auto advantages = batch.extras.find(kAdvantages)->second.as<float>();
  for (int64_t i = 0; i < batch.tokens.num_elements(); ++i) {
    if (mask[i] == 0) continue;
    const int64_t row = i / batch.tokens.dims()[1];
    const int64_t sequence =
        options_.max_segments > 1 ? row * options_.max_segments + segments[i] - 1 : row;
    MW_RETURN_IF_ERROR(CheckGivenValue(kAdvantages, row, advantages[sequence]));
  }
  return absl::OkStatus();
}

absl::Status GrpoLoss::CheckSegments(const data::Batch& batch) const {
  const auto segments = batch.segment_ids.as<int32_t>();
  const auto mask = batch.loss_mask.as<float>();
  const int64_t length = batch.tokens.dims()[1];
  if (options_.max_segments > length) {
    return absl::InvalidArgumentError(
        fmt::format("rows were said to hold up to {} sequences each, and have {}: say no "
                    "more sequences than a row has tokens",
                    options_.max_segments, Counted(length, "token")));
  }
  for (int64_t row = 0; row < batch.tokens.dims()[0]; ++row) {
    int32_t segment = 0;
    for (int64_t i = row * length; i < (row + 1) * length; ++i) {
      if (options_.max_segments > 1) {
        if (segments[i] >= 0 && segments[i] <= options_.max_segments &&
            (segments[i] != 0 || mask[i] == 0)) {
          continue;
        }
        return absl::InvalidArgumentError(fmt::format(
            "row {} has a token {}of segment {}, and rows that hold up to {} sequences have their "
            "tokens in segments 1 to {}, and padding in 0",
            row, segments[i] == 0 ? "with a loss " : "", segments[i], options_.max_segments,
            options_.max_segments));
      }
      if (segment != 0 && segments[i] != 0 && segments[i] != segment) {
        return absl::InvalidArgumentError(fmt::format(
            "row {} holds segments {} and {}, and batches of loss.name=grpo were said to hold one "
            "sequence a row: say that rows are packed, or do not pack them",
            row, segment, segments[i]));
      }
      if (segments[i] != 0) segment = segments[i];
    }
  }
  return absl::OkStatus();
}

LossResult GrpoLoss::Build(const LossInputs& in) const {
  const Tokens tokens(in.loss_mask_BT, in.segment_ids_BT, options_.max_segments);
  const auto given = [&](const char* name) { return in.extras.find(name)->second; };
  nn::HeadOptions head;
  head.temperature = options_.temperature;
  head.entropy = true;
  const nn::TokenLogProbs log_probs = in.LogProbs(head);
  const Value log_prob = log_probs.log_prob;
  const Value fixed_log_prob = ops::StopGradient(log_prob);
  const Value old = options_.has_old_log_probs ? tokens.Kept(given(kOldLogProbs)) : fixed_log_prob;
  const Value advantage = options_.has_token_advantages ? tokens.Kept(given(kAdvantages))
                                                        : tokens.OfSequences(given(kAdvantages));
  const double bound = options_.log_ratio_bound;
  const auto bounded_exp = [&](Value difference) {
    return ops::Exp(ops::Clamp(difference, -bound, bound));
  };

  const Value difference = ops::Sub(log_prob, old);
  Value ratio;
  if (options_.algorithm.starts_with("gspo")) {
    ratio = tokens.OfSequences(bounded_exp(tokens.SequenceMean(difference)));
    if (options_.algorithm == "gspo-token") {
      ratio = ops::Mul(ops::StopGradient(ratio), ops::Exp(ops::Sub(log_prob, fixed_log_prob)));
    }
  } else {
    ratio = bounded_exp(difference);
  }

  Policy policy;
  if (options_.algorithm == "reinforce") {
    policy.loss_BT = ops::Neg(ops::Mul(advantage, log_prob));
  } else if (options_.algorithm == "cispo") {
    policy = Cispo(ratio, advantage, log_prob, options_);
  } else {
    policy = Surrogate(ratio, advantage, options_);
  }

  Value mismatch;
  Value importance;
  if (HasSampler()) mismatch = ops::Sub(old, tokens.Kept(given(kSamplerLogProbs)));
  if (Corrects()) {
    importance = options_.importance == "token"
                     ? bounded_exp(mismatch)
                     : tokens.OfSequences(bounded_exp(tokens.SequenceSum(mismatch)));
    importance = ops::StopGradient(importance);
    const Value weight = ops::Minimum(importance, options_.importance_cap);
    policy.loss_BT = ops::Mul(policy.loss_BT, weight);
  }

  Value kl;
  Value loss_BT = policy.loss_BT;
  if (HasKl()) {
    kl = KlEstimate(log_prob, tokens.Kept(given(kRefLogProbs)), options_.kl_estimator, bound);
    if (KlInLoss()) loss_BT = ops::Add(loss_BT, ops::Mul(kl, options_.kl_coef));
  }

  const auto aggregate = [&](Value v_BT) { return Aggregate(tokens, v_BT, options_); };
  // As metrics() has them.
  LossResult result;
  result.metrics = {aggregate(loss_BT)};
  if (KlInLoss()) result.metrics.push_back(aggregate(policy.loss_BT));
  result.metrics.push_back(tokens.Mean(ratio));
  result.metrics.push_back(tokens.Max(ratio));
  if (Clips()) {
    result.metrics.push_back(tokens.Fraction(policy.low_BT));
    result.metrics.push_back(tokens.Fraction(policy.high_BT));
  }
  if (HasDualClip()) result.metrics.push_back(tokens.Fraction(policy.dual_BT));
  if (HasKl()) result.metrics.push_back(tokens.Mean(kl));
  result.metrics.push_back(tokens.Mean(*log_probs.entropy));
  if (HasSampler()) {
    const Value apart = ops::Abs(mismatch);
    result.metrics.push_back(tokens.Mean(apart));
    result.metrics.push_back(tokens.Max(apart));
    // The sampler's are the drawn ones: exp(d) - d - 1 with d = trainer - sampler.
    const Value d = ops::Clamp(mismatch, -bound, bound);
    result.metrics.push_back(tokens.Mean(ops::Add(ops::Sub(ops::Exp(d), d), -1.0)));
  }
  if (Corrects()) {
    result.metrics.push_back(tokens.Mean(ops::Minimum(importance, options_.importance_cap)));
    result.metrics.push_back(tokens.Fraction(ops::Greater(importance, options_.importance_cap)));
  }
  return result;
}

}  // namespace mw::train
