#include "meshwright/service/trainer_worker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "meshwright/base/check.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/service/call_digest.h"
#include "meshwright/service/reply_memory.h"
#include "meshwright/service/shared_weights.h"
#include "meshwright/service/staging_gate.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/checkpoint.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/make_batch.h"

namespace mw::service {
namespace {

// In a checkpoint's metadata, beside the caller's.
constexpr const char* kReplies = "worker.replies";
constexpr const char* kUpdateDeferred = "worker.update_deferred";

bool IsReservedMetadata(const std::string& key) {
  return key == "model" || key == train::kBaseFingerprint || key.starts_with("worker.");
}

CallDigest DigestOf(std::string_view method, const AfterFwdBwd& after) {
  CallDigest digest(method);
  digest.AddFlag(after.apply_optimizer);
  digest.AddFlag(after.wait_for_update);
  digest.AddFlag(after.defer_update);
  return digest;
}

struct StagedBatch {
  std::string handle;
  std::optional<train::PreparedInput> on_devices;
  std::optional<data::Batch> on_host;
};

}  // namespace

absl::Status AfterFwdBwd::Validate() const {
  if (!apply_optimizer && (wait_for_update || defer_update)) {
    return absl::InvalidArgumentError(
        fmt::format("{} says when an update comes, and without apply_optimizer none does: set that "
                    "too",
                    wait_for_update ? "wait_for_update" : "defer_update"));
  }
  if (wait_for_update && defer_update) {
    return absl::InvalidArgumentError(
        "wait_for_update and defer_update contradict each other: a deferred update is waited for "
        "with ApplyDeferredUpdate");
  }
  return absl::OkStatus();
}

class TrainerWorker::Impl {
 public:
  Impl(train::TrainerOptions options, RecordLog* records)
      : options_(std::move(options)), records_(records) {
    options_.on_record = [this,
                          also = std::move(options_.on_record)](const train::MetricRecord& record) {
      newest_record_ = record;
      records_->Append(record);
      if (also) also(record);
    };
    options_.on_compiling = [this, also = std::move(options_.on_compiling)](bool begins) {
      EnterFrom(begins ? WorkerState::kReady : WorkerState::kCompiling,
                begins ? WorkerState::kCompiling : WorkerState::kReady);
      if (also) also(begins);
    };
  }

  // ---- states

  void Enter(WorkerState state, std::string message = "") {
    const std::lock_guard lock(mutex_);
    MW_CHECK_MSG(MayFollow(health_.state, state), "a worker changed its state as it may not");
    health_.state = state;
    health_.message = std::move(message);
  }
  // Where it is in another state than `from`, as it is when it was told to drain, it stays there.
  void EnterFrom(WorkerState from, WorkerState state) {
    const std::lock_guard lock(mutex_);
    if (health_.state != from) return;
    MW_CHECK_MSG(MayFollow(from, state), "a worker changed its state as it may not");
    health_.state = state;
    health_.message.clear();
  }
  WorkerState state() const {
    const std::lock_guard lock(mutex_);
    return health_.state;
  }
  // Begins to drain. Errors: FailedPrecondition where that is impossible.
  absl::Status BeginDrain() {
    const std::lock_guard lock(mutex_);
    if (health_.state == WorkerState::kPending) {
      health_.state = WorkerState::kStopped;
      return absl::OkStatus();
    }
    if (!MayFollow(health_.state, WorkerState::kDraining)) {
      return absl::FailedPreconditionError(
          fmt::format("Drain was called in state {}", WorkerStateName(health_.state)));
    }
    health_.state = WorkerState::kDraining;
    return absl::OkStatus();
  }

  // At the end of every call.
  void Publish() {
    const absl::Status& engine = trainer_->engine().status();
    const std::lock_guard lock(mutex_);
    health_.position = Position();
    health_.num_staged = staged_.size();
    if (engine.ok()) return;
    health_.message = std::string(engine.message());
    // A worker that drains goes on draining.
    if (health_.state != WorkerState::kError && health_.state != WorkerState::kDraining) {
      health_.state = WorkerState::kError;
    }
  }

  WorkerHealth health() const {
    const std::lock_guard lock(mutex_);
    WorkerHealth health = health_;
    health.num_calls = queue_.size();
    return health;
  }

  WorkerPosition Position() const {
    return {trainer_->step(), trainer_->num_micro_batches(), deferred_, false};
  }

  // ---- what all calls have in common

  // Errors: why no call can be carried out, `restores` or not.
  absl::Status CheckState(bool restores) const {
    const std::lock_guard lock(mutex_);
    switch (health_.state) {
      case WorkerState::kPending:
      case WorkerState::kInitializing:
        return absl::UnavailableError("the worker is still reading the model; try again");
      case WorkerState::kStopped:
        return absl::UnavailableError("the worker has stopped");
      case WorkerState::kError:
        if (restores && trainer_ != nullptr) return absl::OkStatus();
        return absl::FailedPreconditionError(fmt::format(
            "the worker is in state ERROR and takes only Restore: {}", health_.message));
      default:
        // One that drains carries out what was there before.
        return absl::OkStatus();
    }
  }

  absl::StatusOr<CallQueue::Turn> Begin(const Call& call, bool restores = false) {
    // Before it waits: a worker that reads its model has no queue worth waiting in.
    MW_RETURN_IF_ERROR(CheckState(restores));
    MW_ASSIGN_OR_RETURN(CallQueue::Turn turn, queue_.Enter(call.limits));
    MW_RETURN_IF_ERROR(CheckState(restores));
    return turn;
  }

  absl::Status CheckVersion(const Call& call) const {
    if (!call.policy_version || *call.policy_version == trainer_->step()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        fmt::format("the call is for policy version {}, and the worker is at {}",
                    *call.policy_version, trainer_->step()));
  }

  // A call that only looks. `run` is what it does.
  template <typename Reply, typename Run>
  absl::StatusOr<Reply> Look(const Call& call, const Run& run) {
    MW_ASSIGN_OR_RETURN(const CallQueue::Turn turn, Begin(call));
    MW_RETURN_IF_ERROR(CheckVersion(call));
    absl::StatusOr<Reply> reply = run();
    Publish();
    return reply;
  }

  // A call that changes something, and is remembered where it succeeds.
  template <typename Reply, typename Run>
  absl::StatusOr<Reply> Change(const Call& call, const CallDigest& digest, const Run& run,
                               bool restores = false) {
    const std::string asked = digest.Take();
    if (!call.request_id.empty()) MW_RETURN_IF_ERROR(ReplyMemory::CheckId(call.request_id));
    MW_ASSIGN_OR_RETURN(const CallQueue::Turn turn, Begin(call, restores));
    if (!call.request_id.empty()) {
      MW_ASSIGN_OR_RETURN(const ChangeReply* const before, memory_.Find(call.request_id, asked));
      if (before != nullptr) {
        Reply reply = std::get<Reply>(*before);
        reply.position.repeated_call = true;
        return reply;
      }
    }
    MW_RETURN_IF_ERROR(CheckVersion(call));
    absl::StatusOr<Reply> reply = run();
    Publish();
    if (!reply.ok()) return reply;
    reply->position = Position();
    if (!call.request_id.empty()) memory_.Remember(call.request_id, asked, *reply);
    return reply;
  }

  // ---- steps

  absl::Status CheckNotDeferred() const {
    if (!deferred_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "an update is deferred, which comes first: call ApplyDeferredUpdate");
  }

  absl::StatusOr<StepReply> ApplyUpdate(bool wait) {
    dirty_ = true;
    MW_RETURN_IF_ERROR(trainer_->Update());
    ++weights_generation_;
    StepReply reply;
    if (!wait) return reply;
    // Takes the records of all updates so far.
    MW_RETURN_IF_ERROR(trainer_->MetricsHistory().status());
    MW_CHECK(newest_record_ && newest_record_->step == trainer_->step());
    reply.metrics = newest_record_;
    return reply;
  }

  // The step that `dispatch` makes of a micro-batch, and what follows it.
  template <typename Dispatch>
  absl::StatusOr<StepReply> Step(const AfterFwdBwd& after, const Dispatch& dispatch) {
    MW_RETURN_IF_ERROR(CheckNotDeferred());
    // First what can fail without a device that does: a call is carried out whole or not at all.
    if (after.apply_optimizer) MW_RETURN_IF_ERROR(trainer_->engine().CompileUpdate());
    MW_RETURN_IF_ERROR(dispatch());
    dirty_ = true;
    if (after.apply_optimizer && !after.defer_update) return ApplyUpdate(after.wait_for_update);
    deferred_ = after.defer_update;
    return StepReply{};
  }

  absl::Status DispatchStaged(const std::string& handle) {
    const auto found = std::ranges::find(staged_, handle, &StagedBatch::handle);
    if (found == staged_.end()) {
      return absl::NotFoundError(
          fmt::format("no micro-batch is staged as \"{}\": it was used, dropped for {} newer ones, "
                      "or forgotten by a restore; send it with FwdBwd",
                      Excerpt(handle), kMostStaged));
    }
    if (found->on_devices) {
      absl::Status status = trainer_->FwdBwd(*found->on_devices);
      // What is on its way to a failed program is gone.
      if (!status.ok() && !found->on_devices->empty()) return status;
      staged_.erase(found);
      return status;
    }
    MW_RETURN_IF_ERROR(trainer_->FwdBwd(*found->on_host));
    staged_.erase(found);
    return absl::OkStatus();
  }

  absl::StatusOr<StageReply> Stage(const data::Batch& batch) {
    StagedBatch staged;
    if (gate_.open()) {
      MW_ASSIGN_OR_RETURN(staged.on_devices, trainer_->PrepareFwdBwdInput(batch));
      if (gate_.ShouldMeasure()) {
        MW_ASSIGN_OR_RETURN(const double waited_s, trainer_->engine().WaitForDevice());
        gate_.Record(waited_s);
      }
    } else {
      MW_RETURN_IF_ERROR(trainer_->engine().CheckBatch(batch));
      staged.on_host = batch;
    }
    StageReply reply;
    staged.handle = fmt::format("{}-{}", handle_prefix_, ++num_handles_);
    reply.handle = staged.handle;
    reply.on_devices = staged.on_devices.has_value();
    staged_.push_back(std::move(staged));
    if (staged_.size() > kMostStaged) staged_.pop_front();
    return reply;
  }

  // ---- checkpoints and weights

  absl::StatusOr<std::string> SaveCheckpoint(std::map<std::string, std::string> metadata) {
    if (!trainer_->saves_checkpoints()) {
      return absl::FailedPreconditionError(
          options_.out.empty()
              ? "Save was called of a worker without a folder for checkpoints; start it with one"
              : "Save was called of a worker with enable_checkpointing=false; start it without");
    }
    if (has_others_checkpoints_) {
      return absl::FailedPreconditionError(
          fmt::format("{} has checkpoints of an earlier run, which this one would replace: call "
                      "Restore first to continue it, or start the worker with another folder",
                      options_.out));
    }
    metadata[kReplies] = memory_.ToJson();
    if (deferred_) metadata[kUpdateDeferred] = "true";
    MW_RETURN_IF_ERROR(trainer_->SaveCheckpoint(metadata));
    dirty_ = false;
    return fmt::format("{}/checkpoints/{}", options_.out, trainer_->step());
  }

  absl::StatusOr<RestoreReply> RestoreCheckpoint(std::optional<int64_t> step) {
    RestoreReply reply;
    MW_ASSIGN_OR_RETURN(reply.metadata, trainer_->RestoreCheckpoint(step));
    const auto replies = reply.metadata.find(kReplies);
    // One that was not saved by a worker has none.
    absl::StatusOr<ReplyMemory> memory =
        replies == reply.metadata.end() ? ReplyMemory() : ReplyMemory::FromJson(replies->second);
    const absl::Status remembered = memory.status();
    memory_ = memory.ok() ? *std::move(memory) : ReplyMemory();
    deferred_ = reply.metadata.contains(kUpdateDeferred);
    staged_.clear();
    gate_ = StagingGate();
    ++weights_generation_;
    has_others_checkpoints_ = false;
    newest_record_.reset();
    records_->Clear();
    dirty_ = false;
    std::erase_if(reply.metadata,
                  [](const auto& entry) { return IsReservedMetadata(entry.first); });
    // Nobody but a hand can have done that: the checkpoint's files are verified.
    MW_RETURN_IF_ERROR(remembered);
    return reply;
  }

  absl::StatusOr<std::shared_ptr<const WeightsFile>> ReadWeights(std::optional<DType> dtype) {
    MW_ASSIGN_OR_RETURN(auto file, weights_.Find(weights_generation_, dtype));
    if (file != nullptr) return file;
    MW_ASSIGN_OR_RETURN(auto tensors, trainer_->Weights());
    MW_ASSIGN_OR_RETURN(file, WeightsFile::Create(std::move(tensors), dtype, trainer_->step()));
    weights_.Add(weights_generation_, dtype, file);
    return file;
  }

  train::TrainerOptions options_;
  RecordLog* records_;
  CallQueue queue_;

  // Of the call whose turn it is.
  std::unique_ptr<train::Trainer> trainer_;
  ReplyMemory memory_;
  bool deferred_ = false;
  std::deque<StagedBatch> staged_;  // oldest first
  StagingGate gate_;
  // Another one in each process: no handle of an earlier one is taken for one of this.
  const std::string handle_prefix_ = fmt::format("staged-{:08x}", std::random_device()());
  uint64_t num_handles_ = 0;
  int64_t weights_generation_ = 0;  // counts every change of them
  SharedWeights weights_{kMostWeightsFiles};
  std::optional<train::MetricRecord> newest_record_;
  bool dirty_ = false;                   // since the last save or restore
  bool has_others_checkpoints_ = false;  // from before Initialize, none of them restored

  mutable std::mutex mutex_;  // of health_
  WorkerHealth health_;
};

TrainerWorker::TrainerWorker(train::TrainerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options), &records_)) {}
TrainerWorker::~TrainerWorker() = default;

absl::Status TrainerWorker::Initialize() {
  if (impl_->state() != WorkerState::kPending) {
    return absl::FailedPreconditionError(
        fmt::format("Initialize was called in state {}", WorkerStateName(impl_->state())));
  }
  impl_->Enter(WorkerState::kInitializing);
  auto trainer = train::Trainer::Create(impl_->options_);
  if (!trainer.ok()) {
    impl_->Enter(WorkerState::kError, std::string(trainer.status().message()));
    return trainer.status();
  }
  impl_->trainer_ = *std::move(trainer);
  if (!impl_->options_.out.empty()) {
    const auto found = train::FindLatestCheckpoint(impl_->options_.out);
    // Those that are damaged are somebody's too.
    impl_->has_others_checkpoints_ = !found.ok() || found->has_value();
  }
  impl_->Publish();
  impl_->Enter(WorkerState::kReady);
  return absl::OkStatus();
}

absl::StatusOr<data::Batch> TrainerWorker::MakeBatch(
    const std::map<std::string, HostTensor>& tensors, bool for_loss) const {
  MW_RETURN_IF_ERROR(impl_->CheckState(/*restores=*/true));
  std::vector<std::string> known = {"tokens", "targets", "loss_mask", "segment_ids", "positions"};
  const std::vector<train::BatchTensorSpec> extras =
      impl_->trainer_->engine().options().StepLoss()->batch_tensors();
  for (const train::BatchTensorSpec& spec : extras) known.push_back(spec.name);
  for (const auto& [name, tensor] : tensors) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return absl::InvalidArgumentError(fmt::format(
        "the batch has a tensor \"{}\", which this loss does not want{}; it can have {}",
        Excerpt(name), NearestNote(name, known), fmt::join(known, ", ")));
  }
  absl::StatusOr<data::Batch> batch = train::MakeBatch(
      "the batch", tensors, impl_->trainer_->model_config(), /*require_targets=*/true,
      for_loss ? extras : std::vector<train::BatchTensorSpec>());
  if (absl::IsNotFound(batch.status())) {
    return absl::InvalidArgumentError(batch.status().message());
  }
  return batch;
}

absl::StatusOr<StepReply> TrainerWorker::FwdBwd(const data::Batch& batch, const AfterFwdBwd& after,
                                                const Call& call) {
  MW_RETURN_IF_ERROR(after.Validate());
  return impl_->Change<StepReply>(call, DigestOf("FwdBwd", after).Add(batch), [&] {
    return impl_->Step(after, [&] { return impl_->trainer_->FwdBwd(batch); });
  });
}

absl::StatusOr<StageReply> TrainerWorker::StageFwdBwd(const data::Batch& batch, const Call& call) {
  return impl_->Change<StageReply>(call, CallDigest("StageFwdBwd").Add(batch),
                                   [&] { return impl_->Stage(batch); });
}

absl::StatusOr<StepReply> TrainerWorker::FwdBwdStaged(const std::string& handle,
                                                      const AfterFwdBwd& after, const Call& call) {
  MW_RETURN_IF_ERROR(after.Validate());
  return impl_->Change<StepReply>(call, DigestOf("FwdBwdStaged", after).Add(handle), [&] {
    return impl_->Step(after, [&] { return impl_->DispatchStaged(handle); });
  });
}

absl::StatusOr<StepReply> TrainerWorker::Update(bool wait_for_update, const Call& call) {
  return impl_->Change<StepReply>(call, CallDigest("Update").AddFlag(wait_for_update),
                                  [&]() -> absl::StatusOr<StepReply> {
                                    MW_RETURN_IF_ERROR(impl_->CheckNotDeferred());
                                    return impl_->ApplyUpdate(wait_for_update);
                                  });
}

absl::StatusOr<StepReply> TrainerWorker::ApplyDeferredUpdate(bool wait_for_update,
                                                             const Call& call) {
  return impl_->Change<StepReply>(
      call, CallDigest("ApplyDeferredUpdate").AddFlag(wait_for_update),
      [&]() -> absl::StatusOr<StepReply> {
        if (!impl_->deferred_) {
          return absl::FailedPreconditionError(
              "ApplyDeferredUpdate was called, and no update is deferred");
        }
        MW_ASSIGN_OR_RETURN(StepReply reply, impl_->ApplyUpdate(wait_for_update));
        impl_->deferred_ = false;
        return reply;
      });
}

absl::StatusOr<EvalReply> TrainerWorker::Eval(const data::Batch& batch, const Call& call) {
  return impl_->Look<EvalReply>(call, [&]() -> absl::StatusOr<EvalReply> {
    MW_ASSIGN_OR_RETURN(const train::EvalMetrics metrics, impl_->trainer_->EvalStep(batch));
    return EvalReply{impl_->Position(), metrics};
  });
}

absl::StatusOr<ScoreReply> TrainerWorker::Score(const data::Batch& batch,
                                                const train::ScoreOptions& options,
                                                const Call& call) {
  return impl_->Look<ScoreReply>(call, [&]() -> absl::StatusOr<ScoreReply> {
    MW_ASSIGN_OR_RETURN(train::Scores scores, impl_->trainer_->engine().ScoreStep(batch, options));
    return ScoreReply{impl_->Position(), std::move(scores)};
  });
}

absl::StatusOr<SaveReply> TrainerWorker::Save(const std::map<std::string, std::string>& metadata,
                                              const Call& call) {
  CallDigest digest("Save");
  for (const auto& [key, value] : metadata) {
    if (IsReservedMetadata(key)) {
      return absl::InvalidArgumentError(fmt::format(
          "metadata may not be called \"{}\": checkpoints have one of their own", Excerpt(key)));
    }
    digest.Add(key).Add(value);
  }
  return impl_->Change<SaveReply>(call, digest, [&]() -> absl::StatusOr<SaveReply> {
    impl_->EnterFrom(WorkerState::kReady, WorkerState::kSyncing);
    absl::StatusOr<std::string> folder = impl_->SaveCheckpoint(metadata);
    impl_->EnterFrom(WorkerState::kSyncing, WorkerState::kReady);
    if (!folder.ok()) return folder.status();
    return SaveReply{.position = {}, .folder = *std::move(folder)};
  });
}

absl::StatusOr<RestoreReply> TrainerWorker::Restore(std::optional<int64_t> step, const Call& call) {
  CallDigest digest("Restore");
  digest.Add(step ? std::to_string(*step) : "newest");
  return impl_->Change<RestoreReply>(
      call, digest,
      [&] {
        const WorkerState before = impl_->state();
        impl_->EnterFrom(before == WorkerState::kError ? before : WorkerState::kReady,
                         WorkerState::kSyncing);
        absl::StatusOr<RestoreReply> reply = impl_->RestoreCheckpoint(step);
        // Publish makes it ERROR again where the engine has not recovered.
        impl_->EnterFrom(WorkerState::kSyncing, WorkerState::kReady);
        return reply;
      },
      /*restores=*/true);
}

absl::StatusOr<std::shared_ptr<const WeightsFile>> TrainerWorker::Weights(
    std::optional<DType> dtype, const Call& call) {
  using File = std::shared_ptr<const WeightsFile>;
  if (dtype && !IsFloat(*dtype)) {
    return absl::InvalidArgumentError(
        fmt::format("weights are floats, and cannot be read as {}", DTypeName(*dtype)));
  }
  return impl_->Look<File>(call, [&]() -> absl::StatusOr<File> {
    impl_->EnterFrom(WorkerState::kReady, WorkerState::kSyncing);
    absl::StatusOr<File> file = impl_->ReadWeights(dtype);
    impl_->EnterFrom(WorkerState::kSyncing, WorkerState::kReady);
    return file;
  });
}

void TrainerWorker::PollRecords() {
  if (!impl_->CheckState(/*restores=*/false).ok()) return;
  const std::optional<CallQueue::Turn> turn = impl_->queue_.TryEnter();
  if (!turn) return;
  // An error is the engine's, and shows as the state.
  impl_->trainer_->Metrics().status().IgnoreError();
  impl_->Publish();
}

WorkerHealth TrainerWorker::health() const { return impl_->health(); }

absl::Status TrainerWorker::Drain(bool save) {
  MW_RETURN_IF_ERROR(impl_->BeginDrain());
  impl_->queue_.Close();
  impl_->queue_.AwaitEmpty();
  if (impl_->trainer_ == nullptr) {  // of a worker that never was ready
    records_.Close();
    impl_->EnterFrom(WorkerState::kDraining, WorkerState::kStopped);
    return absl::OkStatus();
  }
  const absl::Status& engine = impl_->trainer_->engine().status();
  absl::Status status;
  if (save && impl_->dirty_) {
    status = engine.ok() ? impl_->SaveCheckpoint({}).status()
                         : absl::FailedPreconditionError(
                               fmt::format("nothing was saved: {}", std::string(engine.message())));
  }
  if (engine.ok()) {
    // The records of the last steps, then the devices' memory.
    status.Update(impl_->trainer_->MetricsHistory().status());
    status.Update(impl_->trainer_->Close());
  }
  records_.Close();
  impl_->Enter(WorkerState::kStopped);
  return status;
}

train::Trainer& TrainerWorker::trainer() { return *impl_->trainer_; }

}  // namespace mw::service
