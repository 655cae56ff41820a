// Engine: the two-phase training step on a device.
#ifndef MESHWRIGHT_TRAIN_ENGINE_H_
#define MESHWRIGHT_TRAIN_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/compile/program.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/data/packing.h"
#include "meshwright/models/model.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/train/engine_options.h"
#include "meshwright/train/metrics.h"
#include "meshwright/train/prepared_input.h"
#include "meshwright/train/score_options.h"
#include "meshwright/train/step_flops.h"

namespace mw::train {

// What the compiler was asked for since Create.
struct CompileStats {
  int64_t num_programs = 0;        // built and loaded
  int64_t num_compilations = 0;    // of them compiled; the others came from the cache
  int64_t num_recompilations = 0;  // programs built for a further shape after the first
  double seconds = 0;
};

// What a micro-batch added to the objective's sum and to the denominator.
struct MicroBatchSums {
  double loss_sum = 0;
  double denominator = 0;
};

// A step of which some micro-batches are accumulated.
struct PartialStep {
  int64_t num_micro_batches = 0;  // > 0
  int64_t num_tokens = 0;
  // One for each FwdBwd; FwdBwdBatched has one for all of its micro-batches.
  std::vector<MicroBatchSums> micro_batches;
  HostTensor sums;  // f32 [2 per metric of the loss], see loss_totals.h
  // f32, by trained parameter, over all devices.
  std::map<std::string, HostTensor> accumulators;

  // What `sums` hold of it. REQUIRES: they are f32, and those of a loss.
  float denominator() const;
};

// Everything besides the weights that a run needs to continue, by name: UpdateState (see
// update_graph.h), and what the loss carries as loss.NAME. Independent of devices.
struct EngineState {
  int64_t step = 0;  // calls of Update
  int64_t num_skipped_steps = 0;
  std::map<std::string, HostTensor> tensors;
  std::optional<PartialStep> partial;  // between FwdBwd and Update
};

// The accumulated gradient as the optimizer would get it, before clipping.
struct GradientReadout {
  // f32, sum(grads) / sum(denominators), of the trained ones of params() in their order.
  std::vector<HostTensor> gradients;
  LossTotals loss;
  double grad_norm = 0;
};

// Of each target whose loss_mask is not 0; 0 for the others. What ScoreOptions asked for.
struct Scores {
  HostTensor log_probs;      // f32 [B, T]
  HostTensor entropy;        // f32 [B, T]
  HostTensor top_ids;        // s32 [B, T, top_k], likeliest first
  HostTensor top_log_probs;  // f32 [B, T, top_k]
};

// Trains one model: FwdBwd accumulates the gradient of a micro-batch, Update applies
// it. Both dispatch and return; at most max_inflight_computations are under way. Not
// thread-safe.
//
// Weights and optimizer state live on the device and are updated in place. When a
// computation fails after its inputs were donated, every later call returns
// FailedPrecondition until Restore.
class Engine {
 public:
  // Uploads `params` (in the order of model->Params(options.model), converted to
  // weight_dtype where they have another) and lets each go once it is on the device:
  // move them in, and no second copy of the weights exists. `cache` may be null. Both
  // pointers must outlive the engine. With `state` it continues as after Restore;
  // without, state and counters are zeros.
  // Errors: what options.Validate() refuses; InvalidArgument naming the parameter or the
  // state's tensor whose count, dtype or dims do not fit.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
      const models::Model* model, std::vector<HostTensor> params, const EngineOptions& options,
      const EngineState* state = nullptr);
  // As Create with what `load_params` returns, then Compile(dummy), in less time: the
  // programs are built and compiled on other threads while `load_params` runs on this one.
  // Errors: those of both, and load_params' own, which come first.
  static absl::StatusOr<std::unique_ptr<Engine>> CreateCompiled(
      std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
      const models::Model* model,
      const std::function<absl::StatusOr<std::vector<HostTensor>>()>& load_params,
      const EngineOptions& options, const data::Batch& dummy, const EngineState* state = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Builds first_kernel and update_kernel for batches of the shape of `dummy`; its
  // values do not matter. accum_kernel and eval_kernel are built when first needed.
  absl::Status Compile(const data::Batch& dummy);

  // Builds update_kernel: afterwards an Update fails only where a device does.
  absl::Status CompileUpdate();

  // OK when FwdBwd would take the batch. Errors: as FwdBwd's InvalidArgument.
  absl::Status CheckBatch(const data::Batch& batch) const;

  // Adds the gradient of the batch's unreduced loss to the accumulator. Never touches
  // the weights. The batch's bytes must not change afterwards.
  // Errors: InvalidArgument for tensors of other dtypes or dims than a Batch has, or without
  // one that the loss wants.
  absl::Status FwdBwd(const data::Batch& batch);

  // Moves a batch to the devices, as FwdBwd takes it, and returns while the bytes are on their
  // way: work for the time in which the devices are busy. Changes nothing in the engine, so that
  // training gives the same bits with it and without it, whether it comes before an Update or
  // after it. The batch's bytes must not change afterwards.
  // Errors: as FwdBwd's InvalidArgument.
  absl::StatusOr<PreparedInput> PrepareFwdBwdInput(const data::Batch& batch) const;

  // FwdBwd of a batch that was prepared; moves no data. Empties `input` once its program is there.
  // As with a batch, one of a further shape is compiled for. Errors: FailedPrecondition for one
  // that is empty, or that another engine prepared (also Trainer::SetLoss makes another engine);
  // then `input` is as it was.
  absl::Status FwdBwd(PreparedInput& input);

  // FwdBwd of all micro-batches of a step in one program that loops over them: what is
  // accumulated is the same up to the order of sums, nothing is dispatched in between, and
  // there is one program to compile instead of two. All batches have one shape.
  // Errors: those of FwdBwd; InvalidArgument for batches of several shapes or none;
  // FailedPrecondition when something was accumulated already.
  absl::Status FwdBwdBatched(std::span<const data::Batch> batches);

  // FwdBwd and Update of a step of one micro-batch in one program: no accumulator crosses
  // it. The same arithmetic.
  // Errors: those of FwdBwd; FailedPrecondition when something was accumulated already.
  absl::Status TrainStep(const data::Batch& batch);

  // Applies the optimizer once to what was accumulated, and clears it. What the step
  // did comes out of TakeMetrics.
  // Errors: FailedPrecondition when nothing was accumulated.
  absl::Status Update();

  // Metrics of finished steps that were not taken yet, oldest first. Without `wait`
  // only what is there already; with it those of every Update so far.
  absl::StatusOr<std::vector<StepMetrics>> TakeMetrics(bool wait = false);

  // Loss sums of a batch with the newest weights. Waits for them.
  absl::StatusOr<EvalMetrics> EvalStep(const data::Batch& batch);

  // Log-probabilities of a batch's targets with the newest weights, and no gradients. What the
  // loss wants of a batch is not asked for. Waits for them.
  // Errors: InvalidArgument for a batch of other types, and for options out of range.
  absl::StatusOr<Scores> ScoreStep(const data::Batch& batch, const ScoreOptions& options = {});

  // Compares the copies that devices hold of one part of a weight or of the state.
  // Errors: Internal naming the tensor and the devices where bits differ.
  absl::Status CheckReplicas() const;

  // Copies of the newest weights, in params() order. Waits for them.
  absl::StatusOr<std::vector<HostTensor>> Params() const;
  // Those at `places` of params() alone: the others are not copied.
  absl::StatusOr<std::vector<HostTensor>> Params(std::span<const size_t> places) const;
  // What `device` (its place in the mesh) holds of the newest weights, valid until the
  // next Update or Restore. Only to be read: never donate them.
  std::vector<const runtime::Buffer*> DeviceParams(int64_t device = 0) const;
  // The newest weights, each whole, on each device of the mesh: [device][params() order]. What
  // DeviceParams returns, valid as long, where they lie like that; else copies that `copies`
  // holds, which a program makes. Only to be read.
  // Errors: those of compiling it.
  absl::StatusOr<std::vector<std::vector<const runtime::Buffer*>>> WholeParams(
      std::vector<std::vector<runtime::Buffer>>* copies);
  const std::vector<nn::ParamSpec>& params() const;
  // Those of params() that are trained.
  std::vector<nn::ParamSpec> trained_params() const;

  // Errors: FailedPrecondition when nothing was accumulated.
  absl::StatusOr<GradientReadout> ReadGradients() const;
  // Forgets what was accumulated.
  void ClearGradients();

  // Optimizer state, counters and what is accumulated. Waits for them.
  //
  // A step that is continued from a partial state gives the bits of one that was never
  // interrupted where accumulators are whole on each device; those that devices hold
  // parts of are added up here, which changes the order of their sums.
  absl::StatusOr<EngineState> State() const;
  // Replaces weights, state, counters and what is accumulated, and makes a failed engine
  // usable again.
  // Errors: InvalidArgument naming what is missing, unknown or of another type; then
  // nothing has changed.
  absl::Status Restore(std::vector<HostTensor> params, const EngineState& state);

  // OK while calls are taken; else what made the engine unusable.
  const absl::Status& status() const;
  int64_t step() const;               // calls of Update
  int64_t num_micro_batches() const;  // accumulated since the last Update
  const EngineOptions& options() const;
  CompileStats compile_stats() const;
  // What a step needs, by tokens.
  const StepFlops& flops() const;
  // The programs built so far by name: "first_kernel[4,512]", "update_kernel", ….
  std::map<std::string, const compile::Program*> programs() const;
  // The compiler's account of each program's memory.
  absl::StatusOr<std::map<std::string, runtime::CompiledMemoryStats>> MemoryStats() const;

  // Dispatched computations that were not waited for; at most max_inflight_computations.
  size_t num_in_flight() const;
  // Blocks until all dispatched work is done and returns the seconds that took. Takes nothing
  // off the queue and reads no metrics: whatever comes next is as without it.
  absl::StatusOr<double> WaitForDevice();
  // Blocks until all dispatched work is done and returns its error, if any. Metrics
  // stay to be taken.
  absl::Status WaitForAll();
  // WaitForAll, then frees the device memory; later calls fail.
  absl::Status Close();

 private:
  class Impl;
  static absl::StatusOr<std::unique_ptr<Engine>> CreateEmpty(
      std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
      const models::Model* model, const EngineOptions& options);
  explicit Engine(std::unique_ptr<Impl> impl);
  // What follows an update's dispatch.
  absl::Status FinishUpdate();
  std::unique_ptr<Impl> impl_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_ENGINE_H_
