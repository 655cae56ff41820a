// The programs of a training step.
//
// What crosses them, in this order (n parameters of which m are trained):
//
//   batch     tokens, targets s32; loss_mask f32; segment_ids, positions s32, all [B, T]; then
//             what the loss wants besides (Loss::batch_tensors)
//   sums      f32 [2 per metric of the loss], see loss_totals.h
//   state     the optimizer's slots (parameter by parameter), count s32, and with
//             skip_step_on_spikes history f32 [2, interval], history_count s32
//   carried   what the loss carries (Loss::state)
//   metrics   f32 [kNumStepMetrics + the sums], see StepMetric
//
//   first_kernel   weights, batch, carried                      → accumulators, sums, carried,
//                                                                 gathered
//   accum_kernel   weights, accumulators*, sums, batch, carried → accumulators, sums, carried
//   update_kernel  trained weights*, state*, accumulators, sums → weights, state, metrics
//   gather_kernel  weights                                      → gathered
//   eval_kernel    weights, batch, carried                      → sums
//   score_kernel   weights, the five of batch                   → log-probs, … (ScoreOptions)
//
// and instead of these, with the same arithmetic
//
//   batched_kernel     weights, batches, carried          → accumulators, sums, carried, gathered
//   train_step_kernel  weights*, state*, batch, carried   → trained weights, state, carried,
//   metrics
//
// where batches are [n, B, T]: batched_kernel loops over the n micro-batches of a step,
// train_step_kernel is a step of one. Accumulators and slots exist for trained parameters only.
//
// * donated: the output of the same name takes over the buffer (of the weights, those that are
// trained). Weights have weight_dtype, accumulators and slots are f32 whatever it is. `sums` is
// not donated, since the host may still be reading it. Under gather_parameters=update
// first_kernel also returns the weights that it gathered, in the compute dtype, and accum_kernel
// takes them in place of those; else `gathered` is empty. gather_kernel makes them where a step
// continues after its first micro-batch. No host reads or writes them, and so they lie as the
// target computes with them (compile/native_layout.h).
//
// On a mesh everything lies as StepPlacement says; the metrics and what the loss carries are whole.
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
#include "meshwright/train/micro_batch.h"
#include "meshwright/train/score_options.h"
#include "meshwright/train/update_graph.h"

namespace mw::train {

struct BatchShape {
  int64_t rows = 0;
  int64_t tokens = 0;  // of a row

  friend auto operator<=>(const BatchShape&, const BatchShape&) = default;
};

// See BuildTrainStepKernel.
inline constexpr int64_t kScatteredSumBytes = int64_t{256} << 20;

// How one of them lies.
PartitionSpec BatchTensorPlacement(const BatchTensorSpec& spec, const StepPlacement& placement);
// What the loss says to micro-batches of so many rows (Loss::CheckRows).
absl::Status CheckLossRows(const EngineOptions& options, const StepPlacement& placement,
                           int64_t num_rows);
// The type of `sums`, without how it lies.
TensorType SumsType(const EngineOptions& options);

// Where everything lies. Errors: those of StepParams::Create and PlaceStep.
absl::StatusOr<StepPlacement> PlaceStep(const models::Model& model, const EngineOptions& options,
                                        std::set<std::string>* notes = nullptr);

// Errors: the GraphError of whatever does not fit.
absl::StatusOr<compile::Program> BuildFirstKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape);
absl::StatusOr<compile::Program> BuildAccumKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape);
// REQUIRES: gather_parameters=update.
absl::StatusOr<compile::Program> BuildGatherKernel(const models::Model& model,
                                                   const EngineOptions& options);
// REQUIRES: count > 0.
absl::StatusOr<compile::Program> BuildBatchedKernel(const models::Model& model,
                                                    const EngineOptions& options, BatchShape shape,
                                                    int64_t count);
// With ReduceGradients::kLayer sums of kScatteredSumBytes and more of what is outside of layers are
// scattered and gathered; see spmd/scatter_sums.h.
absl::StatusOr<compile::Program> BuildTrainStepKernel(const models::Model& model,
                                                      const EngineOptions& options,
                                                      BatchShape shape);
absl::StatusOr<compile::Program> BuildEvalKernel(const models::Model& model,
                                                 const EngineOptions& options, BatchShape shape);
// Of targets whose loss_mask is not 0; the others get 0. Laid out as the batch is.
absl::StatusOr<compile::Program> BuildScoreKernel(const models::Model& model,
                                                  const EngineOptions& options, BatchShape shape,
                                                  const ScoreOptions& score);

// What BuildUpdate says, of the parameters that are trained.
// Every weight whole on each device.
//
//   weights → weights
absl::StatusOr<compile::Program> BuildWholeParamsProgram(const models::Model& model,
                                                         const EngineOptions& options);

absl::StatusOr<compile::Program> BuildUpdateKernel(const models::Model& model,
                                                   const EngineOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_STEP_PROGRAMS_H_
