#include "meshwright/train/sft.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "meshwright/base/bad_input.h"
#include "meshwright/base/process_time.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/data/unicode.h"
#include "meshwright/io/file_util.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/async_checkpointer.h"
#include "meshwright/train/checkpoint.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/reference_log_probs.h"
#include "meshwright/train/resume.h"
#include "meshwright/train/run_folder.h"
#include "meshwright/train/step_params.h"
#include "meshwright/train/teacher.h"
#include "meshwright/train/tokenizer_source.h"
#include "meshwright/train/training_data.h"

namespace mw::train {
namespace {

constexpr int kPrefetchedBatches = 2;

// Checkpoints and settings are JSON and YAML: text that cannot be in them is refused before
// there is something to lose.
absl::Status CheckUtf8(const char* what, const std::string& text) {
  std::string storage;
  if (data::ReplaceInvalidUtf8(text, &storage) == text) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} is not UTF-8 text, which a checkpoint has to state; rename it", what));
}

// One run from its checks to its last checkpoint.
class SftRun {
 public:
  SftRun(std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
         const TrainConfig& config, const SftOptions& options)
      : client_(std::move(client)), cache_(cache), config_(config), options_(options) {
    config_.engine.on_notice = [this](std::string_view sentence) { Note(sentence); };
  }

  absl::StatusOr<SftResult> Run(const std::atomic<bool>& stop) {
    MW_RETURN_IF_ERROR(CheckUtf8("--model", options_.model));
    if (!options_.base.empty() && options_.model.empty()) {
      return absl::InvalidArgumentError(
          "--base is the base model of an adapter: give the adapter as --model too");
    }
    if (options_.restart_update && !options_.resume) {
      return absl::InvalidArgumentError(
          "--restart-update begins an update of a saved run again: give --resume too");
    }
    if (config_.eval_interval > 0 && options_.eval_data.empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "eval_interval={} says when --eval-data is measured, and there is none: give it, or "
          "leave eval_interval=-1",
          config_.eval_interval));
    }
    if (config_.engine.loss.name == "grpo") {
      return absl::InvalidArgumentError(
          "loss.name=grpo learns from samples and their rewards, which sft does not make: "
          "give sft, dpo or distill");
    }
    const bool distills = config_.engine.loss.name == "distill";
    if (distills && options_.teacher.empty() && !options_.resume) {
      return absl::InvalidArgumentError(
          "loss.name=distill learns from another model: give it as --teacher MODEL");
    }
    if (!distills && !options_.teacher.empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "--teacher is of loss.name=distill, and loss.name is {}: leave it out, or give "
          "loss.name=distill",
          config_.engine.loss.name));
    }
    MW_RETURN_IF_ERROR(CheckUtf8("--teacher", options_.teacher));
    MW_RETURN_IF_ERROR(CheckOutFolder(options_.out, options_.resume));
    const bool names_model = !options_.model.empty() || !options_.resume;
    MW_ASSIGN_OR_RETURN(const OpenedModel asked, names_model
                                                     ? OpenModel(options_.model, options_.base)
                                                     : OpenModelOfRun(options_.out));
    if (!names_model) Note(fmt::format("--model is {}, with which the run began", asked.origin));
    model_name_ = asked.origin;
    if (const std::string note = config_.AdaptTo(asked.config); !note.empty()) Note(note);
    MW_RETURN_IF_ERROR(CheckTargetLength(asked.config, config_.data.max_target_length));
    MW_RETURN_IF_ERROR(TakeAdapter(asked, &config_.engine.model.lora));
    if (asked.adapter && asked.adapter->dropout > 0) {
      Note(fmt::format("{} says lora_dropout={}: this version trains adapters without dropout",
                       asked.adapter->path, asked.adapter->dropout));
    }
    std::optional<SavedRun> saved;
    if (options_.resume) {
      if (io::IsDirectory(options_.out)) MW_RETURN_IF_ERROR(out_lock_.Lock(options_.out));
      MW_RETURN_IF_ERROR(CheckMetricsFile(options_.out));
      MW_ASSIGN_OR_RETURN(saved, OpenSavedRun(options_.out, asked, config_,
                                              options_.restart_update ? PartialUpdate::kDrop
                                                                      : PartialUpdate::kContinue,
                                              [this](std::string_view note) { Note(note); }));
      MW_RETURN_IF_ERROR(TakeAdapter(saved->model, &config_.engine.model.lora));
      const int64_t step = saved->state.engine.step;
      result_.first_step = result_.last_step = step;
      if (step >= config_.steps) {
        Note(fmt::format("nothing more to do: {} has {} of {} steps", options_.out, step,
                         config_.steps));
        return result_;
      }
      if (!options_.eval_data.empty()) {
        MW_ASSIGN_OR_RETURN(last_measured_, LastEvalStep(options_.out + "/metrics.jsonl", step));
      }
    }
    // OpenSavedRun has verified the other.
    if (!saved) MW_RETURN_IF_ERROR(VerifyFiles(asked));
    model_ = saved ? &saved->model : &asked;
    if (config_.engine.model.lora.enabled()) {
      MW_ASSIGN_OR_RETURN(base_fingerprint_, BaseFingerprint(*model_));
    }
    MW_RETURN_IF_ERROR(OpenData(asked, saved ? &saved->state : nullptr));
    if (stop.load()) return Stopped();
    if (distills) MW_RETURN_IF_ERROR(OpenTeacher(asked, saved ? &saved->state : nullptr));
    MW_ASSIGN_OR_RETURN(const data::Batch empty, EmptyBatch(*dataset_, config_));
    MW_ASSIGN_OR_RETURN(engine_, MakeEngine(client_, cache_, *model_, config_, false,
                                            saved ? &saved->state.engine : nullptr, &empty));
    if (saved) {
      saved->state.engine.tensors.clear();
      saved->state.engine.partial.reset();
      const int64_t begun = engine_->num_micro_batches();
      Note(fmt::format(
          "continuing {} after step {}{}", options_.out, engine_->step(),
          begun == 0 ? "" : fmt::format(" and {} of the next one's micro-batches", begun)));
    }
    if (!config_.enable_checkpointing) {
      Note("enable_checkpointing=false: the trained weights will not be saved");
    }
    if (stop.load()) return Stopped();
    const absl::Status referred = OpenReference(asked, stop);
    if (absl::IsCancelled(referred) && stop.load()) return Stopped();
    MW_RETURN_IF_ERROR(referred);
    const absl::Status trained = Train(stop);
    // What a save reads besides its copies lives here.
    const absl::Status saved_last = FinishSaving(trained.ok());
    if (!trained.ok()) return RunFailure(trained);
    if (!saved_last.ok()) return RunFailure(saved_last);
    return result_;
  }

 private:
  void Note(std::string_view sentence) const {
    if (options_.note) options_.note(sentence);
  }

  // Everything is there: the weights on the device, the programs, the first batch.
  void NoteStart() {
    start_s_ = ProcessAgeSeconds();
    start_cpu_s_ = ProcessCpuSeconds();
    Note(engine_->flops().ToString());
    Note(fmt::format("ready after {:.2f} s, of which {:.2f} s on cores", start_s_, start_cpu_s_));
  }

  SftResult Stopped() {
    result_.stopped = true;
    return result_;
  }

  absl::Status OpenData(const OpenedModel& asked, const CheckpointState* saved) {
    if (!config_.chat_template.empty()) {
      MW_ASSIGN_OR_RETURN(chat_template_, NamedChatTemplate(config_.chat_template));
    }
    MW_ASSIGN_OR_RETURN(dataset_, LoadTrainingData(asked, options_.data, config_));
    for (const std::string& warning : dataset_->report().Warnings()) Note(warning);
    if (!options_.eval_data.empty()) {
      MW_ASSIGN_OR_RETURN(eval_dataset_, LoadTrainingData(asked, {options_.eval_data}, config_));
    }
    MW_ASSIGN_OR_RETURN(std::unique_ptr<data::DataIterator> source,
                        data::DataIterator::Create(dataset_, config_.data));
    if (saved != nullptr) {
      MW_ASSIGN_OR_RETURN(const data::DataIteratorState state, ParsePosition(saved->data_iterator));
      MW_RETURN_IF_ERROR(ExplainOtherData(source->Restore(state), *saved, config_));
    }
    position_ = update_position_ = source->state();
    if (saved != nullptr && saved->engine.partial) {
      MW_ASSIGN_OR_RETURN(update_position_, ParsePosition(saved->update_data_iterator));
    }
    MW_ASSIGN_OR_RETURN(batches_, data::Prefetch(std::move(source), kPrefetchedBatches));
    return absl::OkStatus();
  }

  absl::Status OpenTeacher(const OpenedModel& student, const CheckpointState* saved) {
    std::string before;
    if (saved != nullptr && saved->metadata.contains("teacher")) {
      before = saved->metadata.at("teacher");
    }
    teacher_name_ = options_.teacher.empty() ? before : options_.teacher;
    if (teacher_name_.empty()) {
      return absl::FailedPreconditionError(
          fmt::format("{} does not say which teacher the run has: give --teacher", options_.out));
    }
    if (options_.teacher.empty()) {
      Note(fmt::format("--teacher is {}, with which the run began", before));
    } else if (!before.empty() && before != teacher_name_) {
      Note(fmt::format("--teacher is {} (was {})", teacher_name_, before));
    }
    MW_ASSIGN_OR_RETURN(teacher_, Teacher::Open(client_, cache_, teacher_name_, student, config_));
    fill_ = fill_eval_ = [this](data::Batch& batch) { return teacher_->Fill(batch); };
    return absl::OkStatus();
  }

  // Those of the loss, if it wants any: of the weights that the run began with.
  absl::Status OpenReference(const OpenedModel& asked, const std::atomic<bool>& stop) {
    if (config_.engine.loss.name != "dpo" || config_.engine.loss.dpo.reference_free) {
      return absl::OkStatus();
    }
    reference_facts_ = ReferenceFacts(config_);
    MW_ASSIGN_OR_RETURN(reference_facts_[kReferenceModel], BaseFingerprint(asked));
    const auto open = [&](const std::string& name,
                          const std::shared_ptr<const data::Dataset>& dataset)
        -> absl::StatusOr<ReferenceLogProbs> {
      if (options_.resume)
        return ReferenceLogProbs::Read(options_.out, name, *dataset, reference_facts_);
      Note(fmt::format("scoring the {} rows of {} with the reference", dataset->size(), name));
      return ReferenceLogProbs::Compute(*engine_, dataset, config_, &stop);
    };
    MW_ASSIGN_OR_RETURN(reference_, open("--data", dataset_));
    fill_ = [this](data::Batch& batch) { return reference_->Fill(batch); };
    if (!eval_dataset_) return absl::OkStatus();
    MW_ASSIGN_OR_RETURN(eval_reference_, open("--eval-data", eval_dataset_));
    fill_eval_ = [this](data::Batch& batch) { return eval_reference_->Fill(batch); };
    return absl::OkStatus();
  }

  absl::Status WriteReferenceFile() const {
    if (!reference_ || options_.resume) return absl::OkStatus();
    std::map<std::string, const ReferenceLogProbs*> by_name = {{"--data", &*reference_}};
    if (eval_reference_) by_name["--eval-data"] = &*eval_reference_;
    return WriteReference(options_.out, by_name, reference_facts_);
  }

  absl::Status Train(const std::atomic<bool>& stop) {
    const int64_t first_step = engine_->step();
    if (!last_measured_ || (IsMeasured(first_step) && *last_measured_ < first_step)) {
      MW_RETURN_IF_ERROR(Measure(stop).status());
    }
    bool opened = false;
    while (engine_->step() < config_.steps && !stop.load()) {
      while (NeedsMicroBatch() && !stop.load()) {
        MW_ASSIGN_OR_RETURN(data::Batch batch, batches_->Next());
        if (fill_) MW_RETURN_IF_ERROR(fill_(batch));
        // The batch may have been waited for.
        if (stop.load()) break;
        if (start_s_ == 0) NoteStart();
        if (options_.before_micro_batch) {
          options_.before_micro_batch(engine_->step(), engine_->num_micro_batches(), batch);
        }
        MW_RETURN_IF_ERROR(engine_->FwdBwd(batch));
        CountDispatched();
        position_ = batches_->state();
      }
      if (NeedsMicroBatch()) break;
      MW_RETURN_IF_ERROR(engine_->Update());
      CountDispatched();
      update_position_ = position_;
      // Only once the first step is known to have succeeded may files appear.
      MW_ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, engine_->TakeMetrics(!opened));
      if (!opened) {
        num_in_flight_ = 0;
        MW_RETURN_IF_ERROR(OpenOutput(first_step));
      }
      opened = true;
      if (checkpointer_) MW_RETURN_IF_ERROR(checkpointer_->Poll());
      MW_RETURN_IF_ERROR(Record(metrics));
      const int64_t step = engine_->step();
      if (config_.checkpoint_period > 0 && step % config_.checkpoint_period == 0 &&
          step < config_.steps && !stop.load()) {
        MW_RETURN_IF_ERROR(Save(/*last=*/false));
      }
      if (IsMeasured(step) && step < config_.steps && !stop.load()) {
        MW_RETURN_IF_ERROR(RecordAll());
        MW_RETURN_IF_ERROR(Measure(stop).status());
      }
    }
    result_.last_step = engine_->step();
    result_.stopped = engine_->step() < config_.steps;
    if (stop.load() && num_in_flight_ > 0) {
      Note(fmt::format("stopping: up to {} dispatched computation{} finish{} first", num_in_flight_,
                       num_in_flight_ == 1 ? "" : "s", num_in_flight_ == 1 ? "es" : ""));
    }
    // The step that was begun is saved with what it has accumulated.
    if (engine_->num_micro_batches() > 0 && !opened && config_.enable_checkpointing) {
      MW_RETURN_IF_ERROR(engine_->WaitForAll());
      MW_RETURN_IF_ERROR(OpenOutput(first_step));
      opened = true;
    }
    if (opened) {
      MW_RETURN_IF_ERROR(Save(/*last=*/true));
      if (config_.enable_checkpointing) result_.num_micro_batches = engine_->num_micro_batches();
    }
    if (!result_.stopped) {
      MW_ASSIGN_OR_RETURN(const bool measured, Measure(stop));
      if (!measured) {
        result_.stopped = true;
        Note("stopped before --eval-data was measured: `meshwright eval` does that");
      }
    }
    if (opened) MW_RETURN_IF_ERROR(CheckOutput());
    return engine_->Close();
  }

  // What is removed while it is written takes no write back, and no write fails.
  absl::Status CheckOutput() const {
    std::vector<std::string> lost;
    for (const char* const name : {"config.yaml", "metrics.jsonl"}) {
      if (!io::FileExists(fmt::format("{}/{}", options_.out, name))) lost.emplace_back(name);
    }
    if (lost.empty()) return absl::OkStatus();
    return absl::AbortedError(
        fmt::format("{} was removed from {} during the run and is lost{}",
                    fmt::join(lost, " with "), options_.out,
                    result_.checkpoint.empty()
                        ? ""
                        : fmt::format("; the weights are saved as {}", result_.checkpoint)));
  }

  // The engine holds back what would be more at a time.
  void CountDispatched() {
    num_in_flight_ =
        std::min<int64_t>(num_in_flight_ + 1, config_.engine.max_inflight_computations);
  }

  bool NeedsMicroBatch() const {
    return engine_->num_micro_batches() < config_.gradient_accumulation_steps;
  }

  absl::Status OpenOutput(int64_t first_step) {
    MW_RETURN_IF_ERROR(io::MakeDirectories(options_.out));
    if (!options_.resume) {
      // Another run may have begun in it while this one compiled.
      MW_RETURN_IF_ERROR(CheckOutFolder(options_.out, false));
      MW_RETURN_IF_ERROR(out_lock_.Lock(options_.out));
    }
    MW_RETURN_IF_ERROR(io::WriteFile(options_.out + "/config.yaml", ConfigToYaml(config_)));
    MW_RETURN_IF_ERROR(WriteReferenceFile());
    if (config_.enable_checkpointing) {
      AsyncCheckpointer::Options saving;
      saving.async = config_.async_checkpointing;
      saving.checkpoint.max_num_checkpoints_to_keep = config_.max_num_checkpoints_to_keep;
      saving.note = [this](std::string_view sentence) { Note(sentence); };
      checkpointer_ = std::make_unique<AsyncCheckpointer>(options_.out, std::move(saving));
    }
    recorder_ =
        std::make_unique<MetricsRecorder>([this](std::string_view sentence) { Note(sentence); });
    if (options_.make_console_sink) {
      if (auto sink = options_.make_console_sink(config_.steps))
        recorder_->AddSink(std::move(sink), /*steps_only=*/true);
    }
    const int64_t resume_step = options_.resume ? first_step : -1;
    MW_ASSIGN_OR_RETURN(auto jsonl, OpenJsonlSink(options_.out + "/metrics.jsonl", resume_step));
    recorder_->AddSink(std::move(jsonl));
    if (config_.tensorboard) {
      MW_ASSIGN_OR_RETURN(auto tensorboard,
                          OpenTensorBoardSink(options_.out + "/tensorboard", resume_step));
      recorder_->AddSink(std::move(tensorboard));
    }
    if (!measured_before_) return absl::OkStatus();
    return recorder_->RecordEval(*std::exchange(measured_before_, std::nullopt));
  }

  absl::Status Record(const std::vector<StepMetrics>& metrics) {
    for (const StepMetrics& step : metrics) {
      MetricRecord record = step.ToRecord();
      if (!start_recorded_ && start_s_ > 0) {
        record.Set("perf/start_seconds", start_s_);
        record.Set("perf/start_cpu_seconds", start_cpu_s_);
        start_recorded_ = true;
      }
      if (checkpointer_) checkpointer_->AddMetrics(record);
      MW_RETURN_IF_ERROR(recorder_->Record(std::move(record)));
    }
    // A history that nobody reads would be reported as evicted.
    recorder_->History(true);
    return absl::OkStatus();
  }

  // Waits for the updates that were dispatched.
  absl::Status RecordAll() {
    MW_ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, engine_->TakeMetrics(true));
    num_in_flight_ = 0;
    return Record(metrics);
  }

  // Metrics are written first: a checkpoint never is ahead of them. The last one of a process is
  // waited for and told, since nothing else is until it is there.
  absl::Status Save(bool last) {
    MW_RETURN_IF_ERROR(RecordAll());
    MW_RETURN_IF_ERROR(recorder_->Flush());
    if (!checkpointer_) return absl::OkStatus();
    const std::pair<int64_t, int64_t> at = {engine_->step(), engine_->num_micro_batches()};
    const bool is_new = std::exchange(saved_at_, at) != at;
    if (last && (is_new || checkpointer_->busy())) {
      Note(fmt::format("saving a checkpoint to {}/checkpoints/{}", options_.out, at.first));
    }
    if (is_new) MW_RETURN_IF_ERROR(checkpointer_->Save([this] { return TakeCopies(); }));
    if (!last) return absl::OkStatus();
    MW_RETURN_IF_ERROR(checkpointer_->Wait());
    result_.checkpoint = checkpointer_->newest();
    return absl::OkStatus();
  }

  // One tensor after the other; each is let go once it is in its file.
  absl::StatusOr<CheckpointJob> TakeCopies() const {
    CheckpointJob job;
    MW_ASSIGN_OR_RETURN(job.state.engine, engine_->State());
    job.state.data_iterator = position_.ToJson().dump();
    if (job.state.engine.partial) {
      job.state.update_data_iterator = update_position_.ToJson().dump();
    }
    job.state.seed = config_.data.seed;
    job.state.config = ConfigToYaml(config_);
    job.state.metadata["model"] = model_name_;
    if (!options_.base.empty()) job.state.metadata[kBaseOfModel] = options_.base;
    if (!base_fingerprint_.empty()) job.state.metadata[kBaseFingerprint] = base_fingerprint_;
    if (teacher_) job.state.metadata["teacher"] = teacher_name_;
    const models::LoraOptions& lora = config_.engine.model.lora;
    const std::vector<size_t> places = ExportedPlaces(engine_->params(), lora);
    MW_ASSIGN_OR_RETURN(std::vector<HostTensor> params, engine_->Params(places));
    ExportOptions export_options;
    export_options.dtype = config_.engine.weight_dtype;
    export_options.tokenizer_from = model_;
    export_options.chat_template = chat_template_;
    job.write_model = [params = std::move(params), specs = Pick(engine_->params(), places),
                       model = model_, lora, export_options](const std::string& dir) mutable {
      return ExportTrained(dir, *model, lora, specs, std::move(params), export_options).status();
    };
    return job;
  }

  // Waits for the save that the end of training has left under way, which failed or not. Where
  // training itself failed, that is what the run tells, and this beside it.
  absl::Status FinishSaving(bool trained) {
    if (!checkpointer_) return absl::OkStatus();
    const bool was_busy = checkpointer_->busy();
    const absl::Status status = checkpointer_->Wait();
    if (trained || !was_busy) return status;
    Note(status.ok() ? fmt::format("{} is complete", checkpointer_->newest())
                     : std::string(status.message()));
    return status;
  }

  // False when there is something to measure and `stop` came first.
  absl::StatusOr<bool> Measure(const std::atomic<bool>& stop) {
    if (!eval_dataset_) return true;
    const auto metrics = Evaluate(*engine_, eval_dataset_, config_, &stop, fill_eval_);
    if (absl::IsCancelled(metrics.status()) && stop.load()) return false;
    MW_RETURN_IF_ERROR(metrics.status());
    if (options_.on_eval) options_.on_eval(engine_->step(), *metrics);
    MetricRecord record = metrics->ToRecord(engine_->step());
    if (recorder_) {
      MW_RETURN_IF_ERROR(recorder_->RecordEval(record));
    } else {
      measured_before_ = std::move(record);
    }
    return true;
  }

  // Besides before the first step and after the last.
  bool IsMeasured(int64_t step) const {
    return eval_dataset_ && config_.eval_interval > 0 && step % config_.eval_interval == 0;
  }

  std::shared_ptr<const runtime::Client> client_;
  runtime::ExecutableCache* cache_;
  TrainConfig config_;
  const SftOptions& options_;
  SftResult result_;
  FolderLock out_lock_;
  std::string model_name_;
  std::string base_fingerprint_;  // of a run that trains adapters
  const OpenedModel* model_ = nullptr;
  // The source of the one chosen, which checkpoints carry; "" = the model's own.
  std::string chat_template_;
  std::shared_ptr<const data::Dataset> dataset_;
  std::shared_ptr<const data::Dataset> eval_dataset_;
  std::unique_ptr<data::BatchIterator> batches_;
  std::unique_ptr<Teacher> teacher_;
  std::string teacher_name_;
  std::optional<ReferenceLogProbs> reference_;
  std::optional<ReferenceLogProbs> eval_reference_;
  std::map<std::string, std::string> reference_facts_;
  // Of training batches and of those of eval_dataset_; null where the loss wants nothing.
  FillBatch fill_;
  FillBatch fill_eval_;
  // In the data: of the next micro-batch to be saved, and where its update began.
  data::DataIteratorState position_;
  data::DataIteratorState update_position_;
  std::unique_ptr<Engine> engine_;
  // At most: what is dispatched and not known to be done.
  int64_t num_in_flight_ = 0;
  std::unique_ptr<MetricsRecorder> recorder_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;  // null: none are written
  // The update and micro-batch of the newest save that was begun.
  std::pair<int64_t, int64_t> saved_at_ = {-1, 0};
  // The step of the last measurement of the run that is continued.
  std::optional<int64_t> last_measured_;
  // What was measured before there were files.
  std::optional<MetricRecord> measured_before_;
  // From the start of the process to its first step, in the record of that step.
  double start_s_ = 0;
  double start_cpu_s_ = 0;
  bool start_recorded_ = false;
};

}  // namespace

absl::StatusOr<SftResult> RunSft(std::shared_ptr<const runtime::Client> client,
                                 runtime::ExecutableCache* cache, const TrainConfig& config,
                                 const SftOptions& options, const std::atomic<bool>& stop) {
  return SftRun(std::move(client), cache, config, options).Run(stop);
}

absl::StatusOr<EvalMetrics> Evaluate(Engine& engine, std::shared_ptr<const data::Dataset> dataset,
                                     const TrainConfig& config, const std::atomic<bool>* stop,
                                     const FillBatch& fill) {
  EvalMetrics total;
  MW_RETURN_IF_ERROR(VisitOnce(
      std::move(dataset), config, stop, "the evaluation", [&](data::Batch& batch) -> absl::Status {
        if (fill) MW_RETURN_IF_ERROR(fill(batch));
        MW_ASSIGN_OR_RETURN(const EvalMetrics metrics, engine.EvalStep(batch));
        total += metrics;
        return absl::OkStatus();
      }));
  return total;
}

absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(std::shared_ptr<const runtime::Client> client,
                                                   runtime::ExecutableCache* cache,
                                                   const OpenedModel& model,
                                                   const TrainConfig& config, bool weights_only,
                                                   const EngineState* state,
                                                   const data::Batch* compile_for) {
  EngineOptions options = config.engine;
  if (weights_only) {
    options.optimizer.opt_type = "sgd";
    options.optimizer.sgd_momentum = 0;
    options.mesh.shard_optimizer_over_data = false;  // there is none
  }
  MW_RETURN_IF_ERROR(options.Validate());
  MW_RETURN_IF_ERROR(TakeAdapter(model, &options.model.lora));
  const std::vector<nn::ParamSpec> specs = model.model->Params(options.model);
  const auto load = [&] {
    return LoadParams(model, specs, options.weight_dtype, config.data.seed);
  };
  if (compile_for != nullptr) {
    // A wrong file is told before the compiler has run.
    MW_RETURN_IF_ERROR(CheckWeights(model, specs));
    return Engine::CreateCompiled(std::move(client), cache, model.model.get(), load, options,
                                  *compile_for, state);
  }
  MW_ASSIGN_OR_RETURN(std::vector<HostTensor> params, load());
  return Engine::Create(std::move(client), cache, model.model.get(), std::move(params), options,
                        state);
}

absl::Status RunFailure(const absl::Status& status) {
  return IsBadInput(status.code()) ? absl::InternalError(status.message()) : status;
}

}  // namespace mw::train
