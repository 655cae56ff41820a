// The graph of an update: from accumulated sums to new weights and optimizer state.
#ifndef MESHWRIGHT_TRAIN_UPDATE_GRAPH_H_
#define MESHWRIGHT_TRAIN_UPDATE_GRAPH_H_

#include <string>
#include <vector>

#include "meshwright/core/tensor_type.h"
#include "meshwright/graph/graph.h"
#include "meshwright/nn/param.h"
#include "meshwright/train/engine_options.h"
#include "meshwright/train/placement.h"

namespace mw::train {

// Places in the metrics vector of an update; the sums of the loss follow them.
enum StepMetric { kGradNorm, kClippedGradNorm, kLearningRate, kSkipReason, kNumStepMetrics };

// A tensor of the update's state besides the weights.
struct StateSpec {
  std::string name;  // "<slot>.<parameter>", "count", …
  TensorType type;
};
// In the order of the programs. Everything starts as zeros.
std::vector<StateSpec> UpdateState(const std::vector<nn::ParamSpec>& params,
                                   const EngineOptions& options);
// How each of them lies on the mesh.
std::vector<PartitionSpec> StateSpecs(const std::vector<nn::ParamSpec>& params,
                                      const EngineOptions& options, const StepPlacement& placement);

struct UpdateInputs {
  std::vector<graph::Value> weights;
  std::vector<graph::Value> state;         // as UpdateState
  std::vector<graph::Value> accumulators;  // f32, of the weights' dims
  graph::Value sums;                       // f32 [2 per metric of the loss], see loss_totals.h
};

struct UpdateResult {
  std::vector<graph::Value> weights;
  std::vector<graph::Value> state;
  graph::Value metrics;  // f32 [kNumStepMetrics + the sums]
};

// One update of `params`, which are all trained.
//
//   scale = denominator > 0 ? 1 / (max(denominator, min_denom) + eps) : 0
//   g     = grad_dtype(scale * accumulator)
//   norm  = sqrt(sum g^2), f32, over all parameters
//   g     = g * min(1, threshold / norm)                     (threshold > 0)
//   weights, slots, count = optimizer(…)   unless the step is skipped
//
// The rate comes from `count`, which a skip leaves alone. A skip selects every old
// value, bit for bit: no token, a norm or loss that is not finite, or a spike: loss or
// norm above mean + factor * standard deviation of those of the last `interval`
// finite steps, once half of the interval (at least 2) is known.
// Source of the spike rule: OLMo-core's SkipStepOptimizer.
//
// `placement` is that of `params`. REQUIRES: options.Validate() is OK.
UpdateResult BuildUpdate(const std::vector<nn::ParamSpec>& params, const EngineOptions& options,
                         const StepPlacement& placement, UpdateInputs inputs);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_UPDATE_GRAPH_H_
