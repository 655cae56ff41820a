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
//   update_kernel  weights*, state*, accumulators, sums   → weights, state, metrics
//   eval_kernel    weights, batch                         → sums
//
// and instead of these, with the same arithmetic
//
//   batched_kernel     weights, batches          → accumulators, sums, gathered
//   train_step_kernel  weights*, state*, batch   → weights, state, metrics
//
// where batches are [n, B, T]: batched_kernel loops over the n micro-batches of a step,
// train_step_kernel is a step of one.
//
// * donated: the output of the same name takes over the buffer. Weights have
// weight_dtype, accumulators and slots are f32 whatever it is. `sums` is not donated,
// since the host may still be reading it. Under gather_parameters=update first_kernel also
// returns the weights that it gathered, in the compute dtype, and accum_kernel takes them
// in place of those; else `gathered` is empty.
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
#include "meshwright/train/update_graph.h"

namespace mw::train {

struct BatchShape {
  int64_t rows = 0;
  int64_t tokens = 0;  // of a row

  friend auto operator<=>(const BatchShape&, const BatchShape&) = default;
};
inline constexpr int kNumBatchTensors = 5;

// Where everything lies. Errors: those of PlaceStep.
absl::StatusOr<StepPlacement> PlaceStep(const models::Model& model, const EngineOptions& options,
                                        std::set<std::string>* notes = nullptr);

// Errors: the GraphError of whatever does not fit.
absl::StatusOr<compile::Program> BuildFirstKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape);
absl::StatusOr<compile::Program> BuildAccumKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape);
// REQUIRES: count > 0.
absl::StatusOr<compile::Program> BuildBatchedKernel(const models::Model& model,
                                                    const EngineOptions& options, BatchShape shape,
                                                    int64_t count);
absl::StatusOr<compile::Program> BuildTrainStepKernel(const models::Model& model,
                                                      const EngineOptions& options,
                                                      BatchShape shape);
absl::StatusOr<compile::Program> BuildEvalKernel(const models::Model& model,
                                                 const EngineOptions& options, BatchShape shape);

// What BuildUpdate says.
absl::StatusOr<compile::Program> BuildUpdateKernel(const std::vector<nn::ParamSpec>& params,
                                                   const EngineOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_STEP_PROGRAMS_H_
