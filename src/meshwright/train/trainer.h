// Trainer: a model, its data, its engine and its checkpoints, for programs that train.
//
//   MW_ASSIGN_OR_RETURN(auto trainer, Trainer::Create({.model = "Qwen/Qwen3-0.6B",
//                                                      .out = "runs/mine",
//                                                      .settings = {"learning_rate=1e-5"}}));
//   MW_RETURN_IF_ERROR(trainer->OpenData({"train.jsonl"}));
//   while (trainer->step() < 100) {
//     MW_ASSIGN_OR_RETURN(const data::Batch batch, trainer->NextBatch());
//     MW_RETURN_IF_ERROR(trainer->FwdBwd(batch));
//     MW_RETURN_IF_ERROR(trainer->Update());
//   }
//   MW_RETURN_IF_ERROR(trainer->SaveCheckpoint());
//   return trainer->Close();
#ifndef MESHWRIGHT_TRAIN_TRAINER_H_
#define MESHWRIGHT_TRAIN_TRAINER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/data/batch.h"
#include "meshwright/train/loss.h"
#include "meshwright/train/metrics.h"
#include "meshwright/train/prepared_input.h"

namespace mw::models {
struct ModelConfig;
}

namespace mw::train {

class Engine;

struct TrainerOptions {
  // A Hugging Face folder, a GGUF file, a run's folder or checkpoint, or random:PRESET[:SEED].
  std::string model;
  std::string device = "cpu";  // cpu[:N], tpu, gpu, or a plugin's path
  // The run's folder, for checkpoints; "" = SaveCheckpoint and RestoreCheckpoint are errors.
  std::string out = "";
  // As `meshwright sft` takes them: the file of --config, then each key=value.
  std::string config_file = "";
  std::vector<std::string> settings = {};
  // In place of the loss that loss.name says.
  std::shared_ptr<const Loss> loss = nullptr;
  // What each batch becomes before it is used; null = it is used as it is.
  std::function<absl::StatusOr<data::Batch>(data::Batch)> model_input = nullptr;
  // Told one sentence at a time what a user should know.
  std::function<void(std::string_view)> note = nullptr;
  // Told each step's record, in order, by the call that learns of its end.
  std::function<void(const MetricRecord&)> on_record = nullptr;
  // With loss.name grpo: which of old_logprobs, sampler_logprobs and token_advantages (advantages
  // by token, not by sequence) batches hold, and segments=N where rows are packed: up to N
  // sequences a row, whose advantages are [B, N]. Of another loss it is an error.
  std::optional<std::vector<std::string>> batch_holds = std::nullopt;  // = old_logprobs
  // Told when a program begins to be compiled, and when that is over.
  std::function<void(bool)> on_compiling = nullptr;
};

// The two-phase step: FwdBwd accumulates the gradient of a micro-batch, Update applies it. Both
// dispatch and return; at most max_inflight_computations are under way. Not thread-safe.
//
// When a computation fails after it was given the weights, every later call returns
// FailedPrecondition until RestoreCheckpoint.
class Trainer {
 public:
  // Reads the weights onto the devices. Errors: whatever the settings, the model or the device
  // report.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(TrainerOptions options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // JSONL files, tokenized with the model's tokenizer and its chat template; rows are ordered by
  // `seed` and `shuffle`. A second call replaces the first's data.
  absl::Status OpenData(const std::vector<std::string>& paths);
  // The next micro-batch of the data. Checkpoints know which ones were taken.
  // Errors: FailedPrecondition without OpenData.
  absl::StatusOr<data::Batch> NextBatch();

  // Builds the programs for batches of the shape of `dummy`. What is not compiled is compiled
  // when it is first needed, and a further shape is told and counted (perf/compilations).
  absl::Status Compile(const data::Batch& dummy);

  // Adds the gradient of the batch's unreduced loss to the accumulator.
  absl::Status FwdBwd(const data::Batch& batch);
  // Maps a micro-batch by model_input and moves it to the devices while they are busy with
  // others; changes nothing else, so that weights, losses and norms are the same bits with it and
  // without it, before an Update or after it. See Engine::PrepareFwdBwdInput.
  absl::StatusOr<PreparedInput> PrepareFwdBwdInput(const data::Batch& batch) const;
  // FwdBwd of it, once. Errors: FailedPrecondition for one prepared before SetLoss, by another
  // Trainer, or taken already.
  absl::Status FwdBwd(PreparedInput& input);
  // FwdBwd of all micro-batches of a step in one program.
  absl::Status FwdBwdBatched(std::span<const data::Batch> batches);
  // Applies the optimizer once to what was accumulated, and clears it.
  // Errors: FailedPrecondition when nothing was accumulated.
  absl::Status Update();
  // FwdBwd and Update of a step of one micro-batch in one program.
  absl::Status TrainStep(const data::Batch& batch);
  // The loss and its metrics with the newest weights; batches add up. Waits for them.
  absl::StatusOr<EvalMetrics> EvalStep(const data::Batch& batch);

  // Replaces the loss, or the map of batches, from the next call on. What was compiled for the
  // old loss is dropped; weights and optimizer state stay, and what that loss carried does not.
  // Errors: FailedPrecondition between micro-batches; what EngineOptions::Validate refuses.
  absl::Status SetLoss(std::shared_ptr<const Loss> loss);
  void SetModelInput(std::function<absl::StatusOr<data::Batch>(data::Batch)> model_input);

  // The newest weights by their Hugging Face names, in weight_dtype; for samplers and other
  // programs. Waits for them.
  absl::StatusOr<std::map<std::string, HostTensor>> Weights() const;
  // Replaces them all. Optimizer state and counters stay.
  // Errors: InvalidArgument naming what is missing, unknown, of other dims or no float;
  // FailedPrecondition between micro-batches.
  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights);

  // Writes OUT/checkpoints/STEP (docs/checkpoints.md), with what is accumulated, the position in
  // the data and the caller's `metadata`, in place of one that is there; of adapters those alone.
  // Returns when it is durable. Without `force` only at
  // multiples of checkpoint_period. With enable_checkpointing=false it does nothing.
  absl::Status SaveCheckpoint(const std::map<std::string, std::string>& metadata = {},
                              bool force = true);
  // Continues from OUT/checkpoints/STEP, by default from the newest, and returns its metadata.
  // OpenData comes first where the position in the data is wanted.
  // Errors: NotFound when there is none; DataLoss for a damaged one; InvalidArgument for one of
  // another model or optimizer; FailedPrecondition for one of other data, for an adapter of
  // another shape or base model, or the whole model in place of an adapter. Then nothing has
  // changed.
  absl::StatusOr<std::map<std::string, std::string>> RestoreCheckpoint(
      std::optional<int64_t> step = std::nullopt);

  // The newest finished step's record; nullopt before the first. Never waits.
  absl::StatusOr<std::optional<MetricRecord>> Metrics();
  // The last 128 steps' records, oldest first. Waits for those under way.
  absl::StatusOr<std::vector<MetricRecord>> MetricsHistory(bool clear = false);

  int64_t step() const;               // calls of Update
  int64_t num_micro_batches() const;  // accumulated since the last one
  const models::ModelConfig& model_config() const;
  // Whether SaveCheckpoint writes any: there is a folder, and enable_checkpointing.
  bool saves_checkpoints() const;
  // What is underneath: gradients, memory, programs.
  Engine& engine();

  // Blocks until all dispatched work is done and returns its error, if any.
  absl::Status WaitForAll();
  // WaitForAll, then frees the device memory; later calls fail until RestoreCheckpoint.
  absl::Status Close();

 private:
  class Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TRAINER_H_
