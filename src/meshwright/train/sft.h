// Supervised fine-tuning: the loop around the engine.
#ifndef MESHWRIGHT_TRAIN_SFT_H_
#define MESHWRIGHT_TRAIN_SFT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/dataset.h"
#include "meshwright/data/packing.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/train/config.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/metrics.h"
#include "meshwright/train/open_model.h"

namespace mw::train {

struct SftOptions {
  std::string model;              // see OpenModel; "" with `resume`: see OpenModelOfRun
  std::string base;               // see OpenModel
  std::vector<std::string> data;  // JSONL files
  std::string eval_data;          // "" = none; measured before, every eval_interval, and after
  // Of loss.name distill: see Teacher; "" with `resume`: the run's own.
  std::string teacher;
  std::string out;
  // Continue the newest checkpoint of `out`, which then must have one.
  bool resume = false;
  // With `resume`: an update that was under way begins again, without what it had accumulated.
  bool restart_update = false;
  // Where the console's metrics go besides the files of `out`; may make nothing.
  std::function<std::unique_ptr<MetricSink>(int64_t total_steps)> make_console_sink;
  // Told one sentence at a time what a user should know.
  std::function<void(std::string_view)> note;
  // Told before each micro-batch how many updates are done and which one of its update it
  // is, and its rows. Until the first call the run has nothing to lose: its process may just end.
  std::function<void(int64_t step, int64_t micro_batch, const data::Batch& batch)>
      before_micro_batch;
  // Told the loss on eval_data after `step` updates.
  std::function<void(int64_t step, const EvalMetrics&)> on_eval;
};

struct SftResult {
  int64_t first_step = 0;         // updates done before this run
  int64_t last_step = 0;          // … and after it
  int64_t num_micro_batches = 0;  // of the update after last_step, saved with it
  // By `stop`, before something that the run would have done: a step, or measuring eval_data.
  bool stopped = false;
  std::string checkpoint;  // the newest one that is complete; "" = none was written
};

// Trains. Once `stop` is true, no further micro-batch is dispatched; the newest update is
// saved, and with it what the next one has accumulated.
//
// With loss.name dpo the data are preference rows, and the reference is the model that the run
// begins with: all rows are scored with it before the first step.
//
// With loss.name distill the teacher scores each batch before it is dispatched.
//
// Files in `out`: config.yaml, metrics.jsonl, tensorboard/, checkpoints/, and with dpo
// reference_logprobs.safetensors. Measurements of
// eval_data are records of their own, and a continued run makes those that are not there yet:
// in metrics.jsonl each is there once. Nothing is written before the first micro-batch has
// succeeded. With the same settings, N steps and k steps, a restart and N-k steps give the same
// weights and the same metrics, also when the restart came between two micro-batches; on a mesh
// that defers reductions, then to the order of sums (Engine::State). A run that is finished resumes
// to nothing more to do.
//
// Errors before the first step: whatever the model, the data or the settings report;
// FailedPrecondition for a folder that is not empty without `resume`, or without a
// checkpoint with it. A failure of training itself is never one of the codes that stand
// for bad input (see RunFailure).
absl::StatusOr<SftResult> RunSft(std::shared_ptr<const runtime::Client> client,
                                 runtime::ExecutableCache* cache, const TrainConfig& config,
                                 const SftOptions& options, const std::atomic<bool>& stop);

// Gives a batch what its loss wants besides.
using FillBatch = std::function<absl::Status(data::Batch&)>;

// The loss over all of `dataset` once, in file order. Errors: Cancelled once `stop` is true.
absl::StatusOr<EvalMetrics> Evaluate(Engine& engine, std::shared_ptr<const data::Dataset> dataset,
                                     const TrainConfig& config,
                                     const std::atomic<bool>* stop = nullptr,
                                     const FillBatch& fill = nullptr);

// An engine for `model` with its weights, and with `state` where that is given. With
// `weights_only` it holds no optimizer state: for looking at losses and gradients. With
// `compile_for` its programs for batches of that shape are compiled meanwhile.
absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(std::shared_ptr<const runtime::Client> client,
                                                   runtime::ExecutableCache* cache,
                                                   const OpenedModel& model,
                                                   const TrainConfig& config, bool weights_only,
                                                   const EngineState* state = nullptr,
                                                   const data::Batch* compile_for = nullptr);

// `status` as a failed run: the codes of bad input become Internal.
absl::Status RunFailure(const absl::Status& status);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SFT_H_
