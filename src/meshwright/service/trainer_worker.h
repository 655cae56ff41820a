// TrainerWorker: a Trainer for an orchestrator that may call from many threads and try again.
//
//   TrainerWorker worker({.model = "Qwen/Qwen3-0.6B", .out = "runs/rl", .settings = {…}});
//   MW_RETURN_IF_ERROR(worker.Initialize());
//   MW_ASSIGN_OR_RETURN(const data::Batch batch, worker.MakeBatch(tensors));
//   MW_ASSIGN_OR_RETURN(const StepReply reply,
//                       worker.FwdBwd(batch, {.apply_optimizer = true}, {.request_id = "a-1"}));
//
// `meshwright serve` has it answer over gRPC (trainer_service.h).
#ifndef MESHWRIGHT_SERVICE_TRAINER_WORKER_H_
#define MESHWRIGHT_SERVICE_TRAINER_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/data/batch.h"
#include "meshwright/service/call_queue.h"
#include "meshwright/service/record_log.h"
#include "meshwright/service/replies.h"
#include "meshwright/service/weights_file.h"
#include "meshwright/service/worker_state.h"
#include "meshwright/train/score_options.h"
#include "meshwright/train/trainer.h"

namespace mw::service {

// What a call begins with.
struct Call {
  // Of calls that change something: one that is tried again with the same id is answered what the
  // first was, and nothing is done twice; see ReplyMemory. "" = nothing is remembered.
  std::string request_id = "";
  // Where it is set and the worker is at another one, the call is refused.
  std::optional<int64_t> policy_version = std::nullopt;
  CallLimits limits = {};
};

// What follows a micro-batch.
struct AfterFwdBwd {
  bool apply_optimizer = false;  // an update
  bool wait_for_update = false;  // of which the reply has the metrics; else it is dispatched
  bool defer_update = false;     // when ApplyDeferredUpdate is called, and not before

  // Errors: InvalidArgument for the last two without the first, or both.
  absl::Status Validate() const;
};

struct WorkerHealth {
  WorkerState state = WorkerState::kPending;
  std::string message;  // why, in ERROR
  WorkerPosition position;
  size_t num_staged = 0;
  size_t num_calls = 0;  // under way and waiting
};

// Thread-safe. Calls that act on the trainer are carried out one at a time in the order in which
// they arrive; one that has begun is carried out whole, whoever still waits for it.
//
// Errors of all of them: Unavailable before Initialize and once it drains; DeadlineExceeded and
// Cancelled for one whose turn did not come in time; FailedPrecondition for another policy version
// and, in state ERROR, for all but Restore; InvalidArgument for a request id of another call. A
// call that returns any of these has changed nothing. A failure of the devices themselves is
// Internal or what the plugin reports, and the state is ERROR from then on.
class TrainerWorker {
 public:
  // Micro-batches that may be staged; a further one takes the place of the oldest.
  static constexpr size_t kMostStaged = 4;
  // Copies of the weights for readers that may exist at a time.
  static constexpr size_t kMostWeightsFiles = 2;

  explicit TrainerWorker(train::TrainerOptions options);
  ~TrainerWorker();
  TrainerWorker(const TrainerWorker&) = delete;
  TrainerWorker& operator=(const TrainerWorker&) = delete;

  // Reads the model onto the devices. Errors: as Trainer::Create; then the state is ERROR.
  absl::Status Initialize();

  // A micro-batch of tensors by name, checked: see train::MakeBatch. With `for_loss` it has what
  // the loss wants. Waits for nobody.
  // Errors: InvalidArgument naming the tensor that is missing, unknown or wrong.
  absl::StatusOr<data::Batch> MakeBatch(const std::map<std::string, HostTensor>& tensors,
                                        bool for_loss = true) const;

  // Adds the gradient of a micro-batch to the accumulator.
  // Errors: those of Trainer::FwdBwd; FailedPrecondition while an update is deferred.
  absl::StatusOr<StepReply> FwdBwd(const data::Batch& batch, const AfterFwdBwd& after,
                                   const Call& call);
  // Maps a micro-batch and moves it to the devices, which goes on while they work. Weights,
  // losses and norms are the same bits as without it. The handle is good until it is used, until a
  // Restore, or until kMostStaged others were staged after it.
  absl::StatusOr<StageReply> StageFwdBwd(const data::Batch& batch, const Call& call);
  // FwdBwd of a staged micro-batch. Errors: NotFound for a handle that is not good any more.
  absl::StatusOr<StepReply> FwdBwdStaged(const std::string& handle, const AfterFwdBwd& after,
                                         const Call& call);
  // Errors: FailedPrecondition with nothing accumulated, or while an update is deferred.
  absl::StatusOr<StepReply> Update(bool wait_for_update, const Call& call);
  // Errors: FailedPrecondition when no update is deferred.
  absl::StatusOr<StepReply> ApplyDeferredUpdate(bool wait_for_update, const Call& call);

  absl::StatusOr<EvalReply> Eval(const data::Batch& batch, const Call& call);
  // With the newest weights, and no gradients. The batch may lack what the loss wants.
  absl::StatusOr<ScoreReply> Score(const data::Batch& batch, const train::ScoreOptions& options,
                                   const Call& call);

  // Writes OUT/checkpoints/STEP with the accumulator, a deferred update, the replies remembered
  // and the caller's metadata.
  // Errors: FailedPrecondition without a folder for checkpoints, and where that has some of an
  // earlier run of which none was restored.
  absl::StatusOr<SaveReply> Save(const std::map<std::string, std::string>& metadata,
                                 const Call& call);
  // Continues from a checkpoint, by default the newest. The replies remembered are those that it
  // was saved with: what was done after it is forgotten, so that it can be done again.
  // Errors: those of Trainer::RestoreCheckpoint; then nothing has changed. DataLoss where all is
  // restored but the replies, which somebody has edited: none are remembered.
  absl::StatusOr<RestoreReply> Restore(std::optional<int64_t> step, const Call& call);

  // The newest weights. Readers of one version share a copy.
  // Errors: ResourceExhausted while kMostWeightsFiles others are being read.
  absl::StatusOr<std::shared_ptr<const WeightsFile>> Weights(std::optional<DType> dtype,
                                                             const Call& call);

  // Records of steps. PollRecords adds those that are known by now, unless a call is under way,
  // which then adds them.
  RecordLog& records() { return records_; }
  void PollRecords();
  // Waits for nobody.
  WorkerHealth health() const;

  // Lets calls finish that were made before it, refuses others, and with `save` writes a
  // checkpoint where anything changed since the last. Then frees the devices. The state is STOPPED
  // afterwards, whatever is returned. Errors: of saving and of the devices; FailedPrecondition
  // during Initialize and for a second call, which do nothing.
  absl::Status Drain(bool save);

  // What is underneath. REQUIRES: Initialize succeeded, and no call is under way.
  train::Trainer& trainer();

 private:
  class Impl;
  RecordLog records_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_TRAINER_WORKER_H_
