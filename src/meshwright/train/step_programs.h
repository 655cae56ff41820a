// The programs of a training step.
//
// What crosses them, in this order (n parameters, s optimizer slots):
//
//   batch     tokens, targets s32; loss_mask f32; segment_ids, positions s32, all [B, T]
//   sums      f32 [4]: LossSums in their order
//   state     slots (parameter by parameter: n * s), count s32, and with
//             skip_step_on_spikes history f32 [2, interval], history_count s32
//   metrics   f32 [kNumStepMetrics], see StepMetric
//
//   first_kernel   weights, batch                         → accumulators, sums, gathered
//   accum_kernel   weights, accumulators*, sums, batch    → accumulators, sums
//   update_kernel  weights*, state*, accumulators, sums   → weights, state, summed, metrics
//   eval_kernel    weights, batch                         → sums
//
// * donated: the output of the same name takes over the buffer. Weights have
// weight_dtype, accumulators and slots are f32 whatever it is. `sums` is not donated,
// since the host may still be reading it. Under gather_parameters=update first_kernel also
// returns the weights that it gathered, in the compute dtype, and accum_kernel takes them
// in place of those; else `gathered` is empty. `summed` are the accumulators that the update
// sums over the mesh into as many bytes of a device (all-reduced ones), which it donates: nobody
// reads them, but without them the sums would live beside the accumulators.
//
// On a mesh everything lies as StepPlacement says, the metrics are whole.
#ifndef MESHWRIGHT_TRAIN_STEP_PROGRAMS_H_
#define MESHWRIGHT_TRAIN_STEP_PROGRAMS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/compile/program.h"
#include "meshwright/models/model.h"
#include "meshwright/nn/param.h"
#include "meshwright/train/engine_options.h"
#include "meshwright/train/metrics.h"

namespace mw::train {

struct BatchShape {
  int64_t rows = 0;
  int64_t tokens = 0;  // of a row

  friend auto operator<=>(const BatchShape&, const BatchShape&) = default;
};
inline constexpr int kNumBatchTensors = 5;

// Places in the metrics vector of update_kernel.
enum StepMetric {
  kObjectiveSum,
  kNllSum,
  kZLossSum,
  kDenominator,
  kGradNorm,
  kClippedGradNorm,
  kLearningRate,
  kSkipReason,
  kNumStepMetrics
};

// A tensor of the update's state besides the weights.
struct StateSpec {
  std::string name;  // "m.<parameter>", "v.<parameter>", "count", …
  TensorType type;
};
// In the order of update_kernel. Everything starts as zeros.
std::vector<StateSpec> UpdateState(const std::vector<nn::ParamSpec>& params,
                                   const EngineOptions& options);

// Where everything lies. Errors: those of PlaceStep.
absl::StatusOr<StepPlacement> PlaceStep(const models::Model& model, const EngineOptions& options,
                                        std::set<std::string>* notes = nullptr);

// Errors: the GraphError of whatever does not fit.
absl::StatusOr<compile::Program> BuildFirstKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape);
absl::StatusOr<compile::Program> BuildAccumKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape);
absl::StatusOr<compile::Program> BuildEvalKernel(const models::Model& model,
                                                 const EngineOptions& options, BatchShape shape);

// One update.
//
//   scale = denominator > 0 ? 1 / denominator : 0
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
absl::StatusOr<compile::Program> BuildUpdateKernel(const std::vector<nn::ParamSpec>& params,
                                                   const EngineOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_STEP_PROGRAMS_H_
