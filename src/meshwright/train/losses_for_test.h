// Losses of a user's own, as the tests of the engine's loss interface have them.
#ifndef MESHWRIGHT_TRAIN_LOSSES_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_LOSSES_FOR_TEST_H_

#include <memory>
#include <string>
#include <vector>

#include "meshwright/ops/add.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compose.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/max.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/stop_gradient.h"
#include "meshwright/train/loss.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {

// The sums and denominators that the batch gives for each row: for arithmetic of totals. Nothing
// depends on the weights.
class TableLoss : public Loss {
 public:
  explicit TableLoss(MetricSpec objective = {.name = "loss"}, double term_coefficient = 0)
      : objective_(std::move(objective)), term_coefficient_(term_coefficient) {}

  std::vector<MetricSpec> metrics() const override { return {objective_, {.name = "term"}}; }
  std::vector<BatchTensorSpec> batch_tensors() const override {
    return {{"row_sums", DType::kF32, /*per_token=*/false},
            {"row_counts", DType::kF32, /*per_token=*/false}};
  }
  LossResult Build(const LossInputs& in) const override {
    const auto total = [&](const char* name) {
      return ops::ReduceSum(in.extras.find(name)->second, {0});
    };
    WeightedMetric objective{total("row_sums"), total("row_counts")};
    // 1 in each micro-batch.
    const graph::Value one = ops::FullLike(objective.denominator, 1);
    const WeightedMetric term{one, one};
    if (term_coefficient_ != 0) objective = AddTerm(objective, term, term_coefficient_);
    LossResult result;
    result.metrics = {objective, term};
    return result;
  }

 private:
  MetricSpec objective_;
  double term_coefficient_;
};

// Everything that the interface has: cross-entropy whose tokens the batch weighs, a term with a
// denominator of its own, auxiliary metrics, a tensor with further dims, and what is carried from
// micro-batch to micro-batch: their number, which the objective depends on, and the largest
// hidden value seen.
class RichLoss : public Loss {
 public:
  std::vector<MetricSpec> metrics() const override {
    return {{.name = "loss"}, {.name = "nll", .is_nll = true}, {.name = "rich/activity"}};
  }
  std::vector<BatchTensorSpec> batch_tensors() const override {
    return {{"token_weights", DType::kF32},
            {"row_weights", DType::kF32, /*per_token=*/false},
            {"probes", DType::kF32, /*per_token=*/true, /*trailing=*/{16}}};
  }
  std::vector<LossStateSpec> state() const override {
    return {{"num_micro_batches", HostTensor::Zeros(DType::kS32, {})},
            {"largest", HostTensor::Zeros(DType::kF32, {2})}};
  }
  LossResult Build(const LossInputs& in) const override {
    using graph::Value;
    const nn::TokenLogProbs tokens = in.LogProbs();
    const Value row_weights_BT =
        ops::BroadcastInDim(in.extras.find("row_weights")->second, in.loss_mask_BT.dims(), {0});
    const Value weights = ops::Mul(
        ops::Mul(in.loss_mask_BT, in.extras.find("token_weights")->second), row_weights_BT);
    const Value nll = ops::Neg(ops::ReduceSum(ops::Mul(weights, tokens.log_prob), {0, 1}));
    const Value denominator = ops::ReduceSum(weights, {0, 1});
    // How much the hidden states follow the probes, per row.
    const Value hidden = ops::Convert(in.hidden_BTD, DType::kF32);
    const Value activity =
        ops::ReduceSum(ops::Square(ops::Mul(hidden, in.extras.find("probes")->second)), {0, 1, 2});
    const auto rows = static_cast<double>(in.hidden_BTD.dim(0));
    const WeightedMetric term{activity, ops::FullLike(activity, rows)};
    const Value count = in.state.find("num_micro_batches")->second;
    // Grows by a tenth with each micro-batch.
    const Value growth = ops::Add(ops::Mul(ops::Convert(count, DType::kF32), 0.1), 1.0);
    LossResult result;
    WeightedMetric objective = AddTerm({nll, denominator}, term, 0.01);
    objective.unreduced_sum = ops::Mul(objective.unreduced_sum, growth);
    result.metrics = {objective, {nll, denominator}, term};
    result.state["num_micro_batches"] = ops::Add(count, 1.0);
    const Value seen = ops::StopGradient(ops::ReduceMax(hidden, {0, 1, 2}));
    const Value largest = in.state.find("largest")->second;
    result.state["largest"] = ops::Maximum(largest, ops::BroadcastLike(seen, largest));
    return result;
  }
};

// `batch` with what RichLoss wants, which depends on the row's tokens only.
inline data::Batch Enriched(data::Batch batch, int64_t hidden_size) {
  const Dims dims = batch.tokens.dims();
  HostTensor token_weights = HostTensor::Empty(DType::kF32, dims);
  HostTensor row_weights = HostTensor::Empty(DType::kF32, {dims[0]});
  HostTensor probes = HostTensor::Empty(DType::kF32, {dims[0], dims[1], hidden_size});
  const auto tokens = batch.tokens.as<int32_t>();
  for (int64_t i = 0; i < batch.tokens.num_elements(); ++i) {
    token_weights.mutable_as<float>()[i] = 0.25f * static_cast<float>(1 + tokens[i] % 5);
    for (int64_t d = 0; d < hidden_size; ++d) {
      probes.mutable_as<float>()[i * hidden_size + d] =
          0.1f * static_cast<float>((tokens[i] + 3 * d) % 7);
    }
  }
  for (int64_t r = 0; r < dims[0]; ++r) {
    row_weights.mutable_as<float>()[r] = 1.0f + 0.5f * static_cast<float>(tokens[r * dims[1]] % 3);
  }
  batch.extras = {
      {"token_weights", token_weights}, {"row_weights", row_weights}, {"probes", probes}};
  return batch;
}

// A model of which only the parameters whose names hold `trained` are trained.
class PartlyFrozenModel : public models::Model {
 public:
  PartlyFrozenModel(std::unique_ptr<models::Model> inner, std::string trained)
      : models::Model(inner->config()), inner_(std::move(inner)), trained_(std::move(trained)) {}

  std::vector<nn::ParamSpec> Params(const models::ModelOptions& options) const override {
    std::vector<nn::ParamSpec> params = inner_->Params(options);
    for (nn::ParamSpec& spec : params) {
      spec.trainable = spec.name.find(trained_) != std::string::npos;
    }
    return params;
  }
  graph::Value Hidden(const nn::ParamMap& params, const models::Inputs& inputs,
                      const models::ModelOptions& options) const override {
    return inner_->Hidden(params, inputs, options);
  }
  std::string HeadName() const override { return inner_->HeadName(); }
  models::DecodeResult DecodeStep(const nn::ParamMap& params, const models::DecodeInputs& inputs,
                                  const models::KvCache& cache,
                                  const models::ModelOptions& options) const override {
    return inner_->DecodeStep(params, inputs, cache, options);
  }

 private:
  std::unique_ptr<models::Model> inner_;
  std::string trained_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOSSES_FOR_TEST_H_
