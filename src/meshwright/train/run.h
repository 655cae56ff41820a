// Run: what every loop around the engine has, whatever it learns from: its model, its folder, its
// metrics and its checkpoints.
#ifndef MESHWRIGHT_TRAIN_RUN_H_
#define MESHWRIGHT_TRAIN_RUN_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/batch.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/runtime/client.h"
#include "meshwright/runtime/executable_cache.h"
#include "meshwright/train/async_checkpointer.h"
#include "meshwright/train/config.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/metrics.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/resume.h"
#include "meshwright/train/run_folder.h"

namespace mw::train {

struct RunOptions {
  std::string model;  // see OpenModel; "" with `resume`: see OpenModelOfRun
  std::string base;   // see OpenModel
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
  // Told what was measured on held-out data: eval/NAME, after record.step updates.
  std::function<void(const MetricRecord& record)> on_eval;
};

struct RunResult {
  int64_t first_step = 0;         // updates done before this run
  int64_t last_step = 0;          // … and after it
  int64_t num_micro_batches = 0;  // of the update after last_step, saved with it
  // By `stop`, before something that the run would have done: a step, or measuring held-out data.
  bool stopped = false;
  std::string checkpoint;  // the newest one that is complete; "" = none was written
};

// `status` as a failed run: the codes of bad input become Internal.
absl::Status RunFailure(const absl::Status& status);

// OK for text that checkpoints, which are JSON and YAML, can state. Errors: InvalidArgument saying
// that `what` is to be renamed.
absl::Status CheckUtf8(const char* what, const std::string& text);

// One run from its checks to its last checkpoint. Nothing is written before the first micro-batch
// has succeeded. A loop derives from it:
//
//   OpenModels, its own data, MakeRunEngine, its steps with Dispatch and FinishUpdate, FinishSteps
class Run {
 public:
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

 protected:
  // `options` must outlive the run.
  Run(std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
      const TrainConfig& config, const RunOptions& options);
  virtual ~Run() = default;

  // The model that the run began with is open, and what it continues is not yet: the last time that
  // settings may follow from data.
  virtual absl::Status OpenData() { return absl::OkStatus(); }
  // Files of the loop itself in `out`, once that may be written.
  virtual absl::Status WriteRunFiles() { return absl::OkStatus(); }
  // Adds what the loop needs to be continued to a checkpoint.
  virtual absl::Status AddToCheckpoint(CheckpointJob&) { return absl::OkStatus(); }

  void Note(std::string_view sentence) const;
  RunResult Stopped();

  // Opens the model, and what `resume` continues. False: that has all of its steps already.
  // Errors before there is something to lose: those of the settings, the model and the folder.
  absl::StatusOr<bool> OpenModels();
  // The checkpoint that is continued; null without one.
  const CheckpointState* saved_state() const { return saved_ ? &saved_->state : nullptr; }
  // The position in the data that the checkpoint has, or nothing to restore. Sets position_ and
  // update_position_. Errors: those of ParsePosition; FailedPrecondition for other data.
  absl::Status RestorePosition(data::DataIterator& source);
  // The engine with the model's weights, its programs for batches like `dummy` compiled meanwhile.
  absl::Status MakeRunEngine(const data::Batch& dummy);

  // Accumulates a micro-batch.
  absl::Status Dispatch(const data::Batch& batch);
  // Applies the update, and opens the output folder once the first one has succeeded. Takes the
  // metrics of finished updates, of all of them with `wait`.
  absl::StatusOr<std::vector<StepMetrics>> DispatchUpdate(bool wait = false);
  // Writes the records of updates: StepMetrics::ToRecord, with what the loop has added.
  absl::Status Record(std::vector<MetricRecord> records);
  static std::vector<MetricRecord> ToRecords(const std::vector<StepMetrics>& metrics);
  // Waits for the updates that were dispatched, and records them.
  absl::Status RecordAll();
  // A measurement of held-out data, also before there are files.
  absl::Status RecordMeasurement(MetricRecord record);
  // A log in `out` cannot be written, and `reason` says which: the run goes on, and fails once it
  // has saved.
  void LoseLog(std::string reason) { lost_logs_.push_back(std::move(reason)); }
  // Whether held-out data, where there are any, are due to be measured after `step`, which is
  // neither the first nor the last.
  bool IsMeasured(int64_t step) const;
  // Whether those of the step that the run begins with are not there yet.
  bool IsFirstMeasured() const;

  // Whether a checkpoint is due after `step`, which is not the last.
  bool IsSaved(int64_t step) const;
  // Metrics are written first: a checkpoint never is ahead of them. The last one of a process is
  // waited for and told, since nothing else is until it is there.
  absl::Status Save(bool last);
  // After the last step, or a stop: saves what is done and what the update under way has
  // accumulated, calls `measure` for --eval-data where the steps are done, and closes the engine.
  // Where a stop comes first `measure` returns false, and that is told, `hint` behind it.
  // Errors: Aborted, after all of this, where a log of the run is not whole.
  absl::Status FinishSteps(const std::atomic<bool>& stop,
                           const std::function<absl::StatusOr<bool>()>& measure,
                           std::string_view hint = "");
  // What the run has come to. Waits for the save that the end of training has left under way, which
  // failed or not. Where training itself failed, that is what the run tells, and this beside it.
  absl::StatusOr<RunResult> Finish(const absl::Status& trained);

  std::shared_ptr<const runtime::Client> client_;
  runtime::ExecutableCache* cache_;
  TrainConfig config_;
  const RunOptions& run_options_;
  RunResult result_;

  OpenedModel asked_;                   // what the run began with
  std::optional<SavedRun> saved_;       // what it continues
  const OpenedModel* model_ = nullptr;  // whose weights it begins with: one of both
  std::string chat_template_;           // which checkpoints carry; "" = the model's own
  bool has_eval_data_ = false;
  // In the data: of the next micro-batch to be saved, and where its update began.
  data::DataIteratorState position_;
  data::DataIteratorState update_position_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<MetricsRecorder> recorder_;  // null: the folder is not open yet
  bool opened_ = false;                        // by this run

 private:
  absl::Status SaveSteps(const std::atomic<bool>& stop);
  // After everything. Errors: Aborted for a log that could not be written, or that was removed,
  // which fails no write.
  absl::Status CheckOutput() const;
  void NoteStart();
  absl::Status OpenOutput();
  void CountDispatched();
  absl::StatusOr<CheckpointJob> TakeCopies();
  absl::Status FinishSaving(bool trained);

  FolderLock out_lock_;
  std::string model_name_;
  std::string base_fingerprint_;  // of a run that trains adapters
  int64_t first_step_ = 0;
  // At most: what is dispatched and not known to be done.
  int64_t num_in_flight_ = 0;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;  // null: none are written
  // The update and micro-batch of the newest save that was begun.
  std::pair<int64_t, int64_t> saved_at_ = {-1, 0};
  // The step of the last measurement of the run that is continued.
  std::optional<int64_t> last_measured_;
  // What was measured before there were files.
  std::optional<MetricRecord> measured_before_;
  std::vector<std::string> lost_logs_;  // why, besides what recorder_ knows
  // From the start of the process to its first step, in the record of that step.
  double start_s_ = 0;
  double start_cpu_s_ = 0;
  bool start_recorded_ = false;
};

// An engine for `model` with its weights, and with `state` where that is given. With
// `weights_only` it holds no optimizer state: for looking at losses and gradients. With
// `compile_for` its programs for batches of that shape are compiled meanwhile.
absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(std::shared_ptr<const runtime::Client> client,
                                                   runtime::ExecutableCache* cache,
                                                   const OpenedModel& model,
                                                   const TrainConfig& config, bool weights_only,
                                                   const EngineState* state = nullptr,
                                                   const data::Batch* compile_for = nullptr);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_RUN_H_
