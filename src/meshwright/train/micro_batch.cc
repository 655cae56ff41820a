#include "meshwright/train/micro_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "meshwright/autodiff/join_scans.h"
#include "meshwright/core/graph_error.h"
#include "meshwright/graph/clone.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/max.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/train/placement.h"
#include "meshwright/train/scalars.h"

namespace mw::train {

using graph::Graph;
using graph::Value;

std::vector<BatchTensorSpec> BatchTensors(const EngineOptions& options) {
  std::vector<BatchTensorSpec> tensors = {{"tokens", DType::kS32},
                                          {"targets", DType::kS32},
                                          {"loss_mask", DType::kF32},
                                          {"segment_ids", DType::kS32},
                                          {"positions", DType::kS32}};
  for (BatchTensorSpec& extra : options.StepLoss()->batch_tensors()) {
    tensors.push_back(std::move(extra));
  }
  return tensors;
}

LossInputs AddModel(const models::Model& model, const EngineOptions& options,
                    const std::vector<nn::ParamSpec>& specs, const std::vector<Value>& weights,
                    const std::vector<Value>& batch) {
  nn::ParamMap params;
  for (size_t i = 0; i < specs.size(); ++i) params[specs[i].name] = weights[i];
  LossInputs in;
  in.tokens_BT = batch[0];
  in.targets_BT = batch[1];
  in.loss_mask_BT = batch[2];
  in.segment_ids_BT = batch[3];
  in.positions_BT = batch[4];
  in.hidden_BTD =
      model.Hidden(params, {in.tokens_BT, in.positions_BT, in.segment_ids_BT}, options.model);
  in.head_VD = model.HeadWeight(params);
  in.compute = options.model.compute();
  // Logits of so many tokens on each device.
  in.head_chunk_tokens = options.loss.head_chunk_tokens * NumTokenShardsAtHead(options.mesh);
  return in;
}

std::vector<Value> BuildLoss(const models::Model& model, const EngineOptions& options,
                             const LossSignature& signature,
                             const std::vector<nn::ParamSpec>& specs,
                             const std::vector<Value>& weights, const std::vector<Value>& batch,
                             const std::vector<Value>& carried) {
  LossInputs in = AddModel(model, options, specs, weights, batch);
  for (size_t i = kNumPackedTensors; i < batch.size(); ++i) {
    in.extras[signature.batch[i].name] = batch[i];
  }
  for (size_t i = 0; i < carried.size(); ++i) in.state[signature.carried[i].name] = carried[i];
  const LossResult result = signature.loss->Build(in);
  const auto check = [&](bool fits, const std::string& what) {
    if (!fits) {
      throw GraphError(absl::StatusCode::kInvalidArgument, "loss", what,
                       in.hidden_BTD.graph().scope());
    }
  };
  check(result.metrics.size() == signature.loss->metrics().size(),
        fmt::format("it built {} metrics but declares {}", result.metrics.size(),
                    signature.loss->metrics().size()));
  std::vector<Value> outputs;
  for (const WeightedMetric& metric : result.metrics) {
    for (const Value value : {metric.unreduced_sum, metric.denominator}) {
      check(value && value.type().dims.empty() && value.dtype() == DType::kF32,
            "its sums and denominators must be f32 scalars");
      outputs.push_back(value);
    }
  }
  for (const LossStateSpec& spec : signature.carried) {
    const auto it = result.state.find(spec.name);
    check(it != result.state.end() && it->second.dtype() == spec.initial.dtype() &&
              it->second.dims() == spec.initial.dims(),
          fmt::format("it built no new value of the right type of its state {}", spec.name));
    outputs.push_back(it->second);
  }
  return outputs;
}

autodiff::GradientResult BuildMicroBatch(Graph& g, const models::Model& model,
                                         const EngineOptions& options,
                                         const LossSignature& signature, const StepParams& params,
                                         const std::vector<Value>& weights,
                                         const std::vector<Value>& batch,
                                         const std::vector<Value>& carried,
                                         const std::vector<Value>& accumulators) {
  Graph forward;
  std::vector<Value> arguments;
  const auto mirror = [&](const std::vector<Value>& values, const auto& name) {
    std::vector<Value> mirrored;
    for (size_t i = 0; i < values.size(); ++i) {
      arguments.push_back(values[i]);
      mirrored.push_back(
          forward.AddParameter(TensorType(values[i].dtype(), values[i].dims()), name(i)));
    }
    return mirrored;
  };
  const std::vector<Value> forward_weights =
      mirror(weights, [&](size_t i) { return params.all[i].name; });
  const std::vector<Value> forward_batch =
      mirror(batch, [&](size_t i) { return signature.batch[i].name; });
  const std::vector<Value> forward_carried =
      mirror(carried, [&](size_t i) { return signature.carried[i].name; });
  forward.SetOutputs(BuildLoss(model, options, signature, params.all, forward_weights,
                               forward_batch, forward_carried));
  const std::vector<int> wrt(params.trained.begin(), params.trained.end());
  // On a mesh a gradient that is not whole is exchanged on its way to the accumulator.
  const autodiff::Accumulate accumulate = options.mesh.partition.mesh.empty()
                                              ? autodiff::Accumulate::kEachUse
                                              : autodiff::Accumulate::kWhole;
  Graph backward;
  std::vector<Value> outer = arguments, own_arguments, own_accumulators(accumulators.size());
  for (const Value& v : arguments) {
    own_arguments.push_back(backward.AddParameter(TensorType(v.dtype(), v.dims()), "argument"));
  }
  for (size_t i = 0; i < accumulators.size(); ++i) {
    const Value v = accumulators[i];
    if (!v) continue;
    own_accumulators[i] = backward.AddParameter(TensorType(v.dtype(), v.dims()), "accumulator");
    outer.push_back(v);
  }
  autodiff::GradientResult result = autodiff::BuildGradient(backward, forward, own_arguments, wrt,
                                                            kLossSum, own_accumulators, accumulate);
  std::vector<Value> outputs = result.outputs;
  outputs.insert(outputs.end(), result.gradients.begin(), result.gradients.end());
  backward.SetOutputs(outputs);
  outputs = graph::InlineGraph(g, *autodiff::JoinScans(backward), outer);
  const auto first_gradient = outputs.begin() + static_cast<std::ptrdiff_t>(result.outputs.size());
  result.gradients.assign(first_gradient, outputs.end());
  result.outputs.assign(outputs.begin(), first_gradient);
  return result;
}

Value CombineSums(Value sums, Value more, const Loss& loss, const PartitionSpec& place) {
  const std::vector<MetricSpec> metrics = loss.metrics();
  if (std::ranges::none_of(metrics, &MetricSpec::is_max)) return ops::Add(sums, more);
  const Value a = ops::Reshard(sums, {});
  const Value b = ops::Reshard(more, {});
  const Value added = ops::Add(a, b);
  const Value larger = ops::Maximum(a, b);
  std::vector<Value> combined;
  for (size_t i = 0; i < metrics.size(); ++i) {
    const auto at = static_cast<int64_t>(2 * i);
    combined.push_back(Element(metrics[i].is_max ? larger : added, at + kLossSum));
    combined.push_back(Element(added, at + kLossDenominator));
  }
  return ops::Reshard(PackScalars(combined), place);
}

LossOutputs PackLoss(std::vector<Value> outputs, size_t num_carried) {
  LossOutputs packed;
  const auto end = outputs.end() - static_cast<std::ptrdiff_t>(num_carried);
  packed.carried.assign(end, outputs.end());
  outputs.erase(end, outputs.end());
  packed.sums = PackScalars(outputs);
  return packed;
}

}  // namespace mw::train
