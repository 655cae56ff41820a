// Supervised fine-tuning: the loop around the engine.
#ifndef MESHWRIGHT_TRAIN_SFT_H_
#define MESHWRIGHT_TRAIN_SFT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
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
#include "meshwright/train/run.h"

namespace mw::train {

struct SftOptions : RunOptions {
  std::vector<std::string> data;  // JSONL files
  std::string eval_data;          // "" = none; measured before, every eval_interval, and after
  // Of loss.name distill: see Teacher; "" with `resume`: the run's own.
  std::string teacher;
};

using SftResult = RunResult;

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

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SFT_H_
