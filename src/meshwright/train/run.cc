#include "meshwright/train/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "meshwright/base/bad_input.h"
#include "meshwright/base/process_time.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/data/unicode.h"
#include "meshwright/io/file_util.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/step_params.h"
#include "meshwright/train/tokenizer_source.h"
#include "meshwright/train/training_data.h"

namespace mw::train {

absl::Status RunFailure(const absl::Status& status) {
  return IsBadInput(status.code()) ? absl::InternalError(status.message()) : status;
}

absl::Status CheckUtf8(const char* what, const std::string& text) {
  std::string storage;
  if (data::ReplaceInvalidUtf8(text, &storage) == text) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} is not UTF-8 text, which a checkpoint has to state; rename it", what));
}

Run::Run(std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
         const TrainConfig& config, const RunOptions& options)
    : client_(std::move(client)), cache_(cache), config_(config), run_options_(options) {
  config_.engine.on_notice = [this](std::string_view sentence) { Note(sentence); };
}

void Run::Note(std::string_view sentence) const {
  if (run_options_.note) run_options_.note(sentence);
}

RunResult Run::Stopped() {
  result_.stopped = true;
  return result_;
}

absl::StatusOr<bool> Run::OpenModels() {
  MW_RETURN_IF_ERROR(CheckUtf8("--model", run_options_.model));
  if (!run_options_.base.empty() && run_options_.model.empty()) {
    return absl::InvalidArgumentError(
        "--base is the base model of an adapter: give the adapter as --model too");
  }
  if (run_options_.restart_update && !run_options_.resume) {
    return absl::InvalidArgumentError(
        "--restart-update begins an update of a saved run again: give --resume too");
  }
  if (config_.eval_interval > 0 && !has_eval_data_) {
    return absl::InvalidArgumentError(fmt::format(
        "eval_interval={} says when --eval-data is measured, and there is none: give it, or "
        "leave eval_interval=-1",
        config_.eval_interval));
  }
  MW_RETURN_IF_ERROR(CheckOutFolder(run_options_.out, run_options_.resume));
  const bool names_model = !run_options_.model.empty() || !run_options_.resume;
  MW_ASSIGN_OR_RETURN(asked_, names_model ? OpenModel(run_options_.model, run_options_.base)
                                          : OpenModelOfRun(run_options_.out));
  if (!names_model) Note(fmt::format("--model is {}, with which the run began", asked_.origin));
  model_name_ = asked_.origin;
  if (!config_.chat_template.empty()) {
    MW_ASSIGN_OR_RETURN(chat_template_, NamedChatTemplate(config_.chat_template));
  }
  MW_RETURN_IF_ERROR(OpenData());
  if (const std::string note = config_.AdaptTo(asked_.config); !note.empty()) Note(note);
  MW_RETURN_IF_ERROR(CheckTargetLength(asked_.config, config_.data.max_target_length));
  MW_RETURN_IF_ERROR(TakeAdapter(asked_, &config_.engine.model.lora));
  if (asked_.adapter && asked_.adapter->dropout > 0) {
    Note(fmt::format("{} says lora_dropout={}: this version trains adapters without dropout",
                     asked_.adapter->path, asked_.adapter->dropout));
  }
  if (run_options_.resume) {
    if (io::IsDirectory(run_options_.out)) MW_RETURN_IF_ERROR(out_lock_.Lock(run_options_.out));
    MW_RETURN_IF_ERROR(CheckMetricsFile(run_options_.out));
    MW_ASSIGN_OR_RETURN(saved_, OpenSavedRun(run_options_.out, asked_, config_,
                                             run_options_.restart_update ? PartialUpdate::kDrop
                                                                         : PartialUpdate::kContinue,
                                             [this](std::string_view note) { Note(note); }));
    MW_RETURN_IF_ERROR(TakeAdapter(saved_->model, &config_.engine.model.lora));
    const int64_t step = saved_->state.engine.step;
    result_.first_step = result_.last_step = step;
    if (step >= config_.steps) {
      Note(fmt::format("nothing more to do: {} has {} of {} steps", run_options_.out, step,
                       config_.steps));
      return false;
    }
    if (has_eval_data_) {
      MW_ASSIGN_OR_RETURN(last_measured_, LastEvalStep(run_options_.out + "/metrics.jsonl", step));
    }
  }
  // OpenSavedRun has verified the other.
  if (!saved_) MW_RETURN_IF_ERROR(VerifyFiles(asked_));
  model_ = saved_ ? &saved_->model : &asked_;
  if (config_.engine.model.lora.enabled()) {
    MW_ASSIGN_OR_RETURN(base_fingerprint_, BaseFingerprint(*model_));
  }
  return true;
}

absl::Status Run::RestorePosition(data::DataIterator& source) {
  if (saved_) {
    MW_ASSIGN_OR_RETURN(const data::DataIteratorState state,
                        ParsePosition(saved_->state.data_iterator));
    MW_RETURN_IF_ERROR(ExplainOtherData(source.Restore(state), saved_->state, config_));
  }
  position_ = update_position_ = source.state();
  if (saved_ && saved_->state.engine.partial) {
    MW_ASSIGN_OR_RETURN(update_position_, ParsePosition(saved_->state.update_data_iterator));
  }
  return absl::OkStatus();
}

absl::Status Run::MakeRunEngine(const data::Batch& dummy) {
  MW_ASSIGN_OR_RETURN(engine_, MakeEngine(client_, cache_, *model_, config_, false,
                                          saved_ ? &saved_->state.engine : nullptr, &dummy));
  first_step_ = engine_->step();
  if (saved_) {
    saved_->state.engine.tensors.clear();
    saved_->state.engine.partial.reset();
    const int64_t begun = engine_->num_micro_batches();
    Note(fmt::format(
        "continuing {} after step {}{}", run_options_.out, engine_->step(),
        begun == 0 ? "" : fmt::format(" and {} of the next one's micro-batches", begun)));
  }
  if (!config_.enable_checkpointing) {
    Note("enable_checkpointing=false: the trained weights will not be saved");
  }
  return absl::OkStatus();
}

// Everything is there: the weights on the device, the programs, the first batch.
void Run::NoteStart() {
  start_s_ = ProcessAgeSeconds();
  start_cpu_s_ = ProcessCpuSeconds();
  Note(engine_->flops().ToString());
  Note(fmt::format("ready after {:.2f} s, of which {:.2f} s on cores", start_s_, start_cpu_s_));
}

// The engine holds back what would be more at a time.
void Run::CountDispatched() {
  num_in_flight_ = std::min<int64_t>(num_in_flight_ + 1, config_.engine.max_inflight_computations);
}

absl::Status Run::Dispatch(const data::Batch& batch) {
  if (start_s_ == 0) NoteStart();
  if (run_options_.before_micro_batch) {
    run_options_.before_micro_batch(engine_->step(), engine_->num_micro_batches(), batch);
  }
  MW_RETURN_IF_ERROR(engine_->FwdBwd(batch));
  CountDispatched();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StepMetrics>> Run::DispatchUpdate(bool wait) {
  MW_RETURN_IF_ERROR(engine_->Update());
  CountDispatched();
  update_position_ = position_;
  // Only once the first step is known to have succeeded may files appear.
  MW_ASSIGN_OR_RETURN(std::vector<StepMetrics> metrics, engine_->TakeMetrics(!opened_ || wait));
  if (!opened_ || wait) num_in_flight_ = 0;
  if (!opened_) MW_RETURN_IF_ERROR(OpenOutput());
  if (checkpointer_) MW_RETURN_IF_ERROR(checkpointer_->Poll());
  return metrics;
}

absl::Status Run::OpenOutput() {
  MW_RETURN_IF_ERROR(io::MakeDirectories(run_options_.out));
  if (!run_options_.resume) {
    // Another run may have begun in it while this one compiled.
    MW_RETURN_IF_ERROR(CheckOutFolder(run_options_.out, false));
    MW_RETURN_IF_ERROR(out_lock_.Lock(run_options_.out));
  }
  MW_RETURN_IF_ERROR(io::WriteFile(run_options_.out + "/config.yaml", ConfigToYaml(config_)));
  MW_RETURN_IF_ERROR(WriteRunFiles());
  if (config_.enable_checkpointing) {
    AsyncCheckpointer::Options saving;
    saving.async = config_.async_checkpointing;
    saving.checkpoint.max_num_checkpoints_to_keep = config_.max_num_checkpoints_to_keep;
    saving.note = [this](std::string_view sentence) { Note(sentence); };
    checkpointer_ = std::make_unique<AsyncCheckpointer>(run_options_.out, std::move(saving));
  }
  recorder_ =
      std::make_unique<MetricsRecorder>([this](std::string_view sentence) { Note(sentence); });
  if (run_options_.make_console_sink) {
    if (auto sink = run_options_.make_console_sink(config_.steps))
      recorder_->AddSink(std::move(sink), /*is_console=*/true);
  }
  const int64_t resume_step = run_options_.resume ? first_step_ : -1;
  MW_ASSIGN_OR_RETURN(auto jsonl, OpenJsonlSink(run_options_.out + "/metrics.jsonl", resume_step));
  recorder_->AddSink(std::move(jsonl));
  if (config_.tensorboard) {
    MW_ASSIGN_OR_RETURN(auto tensorboard,
                        OpenTensorBoardSink(run_options_.out + "/tensorboard", resume_step));
    recorder_->AddSink(std::move(tensorboard));
  }
  opened_ = true;
  if (!measured_before_) return absl::OkStatus();
  return recorder_->RecordEval(*std::exchange(measured_before_, std::nullopt));
}

std::vector<MetricRecord> Run::ToRecords(const std::vector<StepMetrics>& metrics) {
  std::vector<MetricRecord> records;
  records.reserve(metrics.size());
  for (const StepMetrics& step : metrics) records.push_back(step.ToRecord());
  return records;
}

absl::Status Run::Record(std::vector<MetricRecord> records) {
  for (MetricRecord& record : records) {
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

absl::Status Run::RecordAll() {
  MW_ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, engine_->TakeMetrics(true));
  num_in_flight_ = 0;
  return Record(ToRecords(metrics));
}

absl::Status Run::RecordMeasurement(MetricRecord record) {
  if (run_options_.on_eval) run_options_.on_eval(record);
  if (recorder_) return recorder_->RecordEval(record);
  measured_before_ = std::move(record);
  return absl::OkStatus();
}

bool Run::IsMeasured(int64_t step) const {
  return has_eval_data_ && config_.eval_interval > 0 && step % config_.eval_interval == 0;
}

bool Run::IsFirstMeasured() const {
  return has_eval_data_ &&
         (!last_measured_ || (IsMeasured(first_step_) && *last_measured_ < first_step_));
}

bool Run::IsSaved(int64_t step) const {
  return config_.checkpoint_period > 0 && step % config_.checkpoint_period == 0 &&
         step < config_.steps;
}

absl::Status Run::Save(bool last) {
  MW_RETURN_IF_ERROR(RecordAll());
  MW_RETURN_IF_ERROR(recorder_->Flush());
  if (!checkpointer_) return absl::OkStatus();
  const std::pair<int64_t, int64_t> at = {engine_->step(), engine_->num_micro_batches()};
  const bool is_new = std::exchange(saved_at_, at) != at;
  if (last && (is_new || checkpointer_->busy())) {
    Note(fmt::format("saving a checkpoint to {}/checkpoints/{}", run_options_.out, at.first));
  }
  if (is_new) MW_RETURN_IF_ERROR(checkpointer_->Save([this] { return TakeCopies(); }));
  if (!last) return absl::OkStatus();
  MW_RETURN_IF_ERROR(checkpointer_->Wait());
  result_.checkpoint = checkpointer_->newest();
  return absl::OkStatus();
}

// One tensor after the other; each is let go once it is in its file.
absl::StatusOr<CheckpointJob> Run::TakeCopies() {
  CheckpointJob job;
  MW_ASSIGN_OR_RETURN(job.state.engine, engine_->State());
  job.state.data_iterator = position_.ToJson().dump();
  if (job.state.engine.partial) {
    job.state.update_data_iterator = update_position_.ToJson().dump();
  }
  job.state.seed = config_.data.seed;
  job.state.config = ConfigToYaml(config_);
  job.state.metadata["model"] = model_name_;
  if (!run_options_.base.empty()) job.state.metadata[kBaseOfModel] = run_options_.base;
  if (!base_fingerprint_.empty()) job.state.metadata[kBaseFingerprint] = base_fingerprint_;
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
  MW_RETURN_IF_ERROR(AddToCheckpoint(job));
  return job;
}

absl::Status Run::FinishSteps(const std::atomic<bool>& stop,
                              const std::function<absl::StatusOr<bool>()>& measure,
                              std::string_view hint) {
  MW_RETURN_IF_ERROR(SaveSteps(stop));
  if (!result_.stopped) {
    MW_ASSIGN_OR_RETURN(const bool measured, measure());
    if (!measured) {
      result_.stopped = true;
      Note(fmt::format("stopped before --eval-data was measured{}", hint));
    }
  }
  MW_RETURN_IF_ERROR(engine_->Close());
  return opened_ ? CheckOutput() : absl::OkStatus();
}

absl::Status Run::SaveSteps(const std::atomic<bool>& stop) {
  result_.last_step = engine_->step();
  result_.stopped = engine_->step() < config_.steps;
  if (stop.load() && num_in_flight_ > 0) {
    Note(fmt::format("stopping: up to {} dispatched computation{} finish{} first", num_in_flight_,
                     num_in_flight_ == 1 ? "" : "s", num_in_flight_ == 1 ? "es" : ""));
  }
  // The step that was begun is saved with what it has accumulated.
  if (engine_->num_micro_batches() > 0 && !opened_ && config_.enable_checkpointing) {
    MW_RETURN_IF_ERROR(engine_->WaitForAll());
    MW_RETURN_IF_ERROR(OpenOutput());
  }
  if (!opened_) return absl::OkStatus();
  MW_RETURN_IF_ERROR(Save(/*last=*/true));
  if (config_.enable_checkpointing) result_.num_micro_batches = engine_->num_micro_batches();
  return absl::OkStatus();
}

absl::Status Run::CheckOutput() const {
  std::vector<std::string> removed;
  for (const char* const name : {"config.yaml", "metrics.jsonl"}) {
    if (!io::FileExists(fmt::format("{}/{}", run_options_.out, name))) removed.emplace_back(name);
  }
  std::vector<std::string> what;
  if (!removed.empty()) {
    what.push_back(fmt::format("{} was removed from {} during the run and is lost",
                               fmt::join(removed, " with "), run_options_.out));
  }
  std::vector<std::string> unwritten = recorder_->lost();
  unwritten.insert(unwritten.end(), lost_logs_.begin(), lost_logs_.end());
  if (!unwritten.empty()) {
    what.push_back(fmt::format("the log of the run is not whole: {}", fmt::join(unwritten, ", ")));
  }
  if (what.empty()) return absl::OkStatus();
  if (!result_.checkpoint.empty()) {
    what.push_back(fmt::format("the weights are saved as {}", result_.checkpoint));
  }
  return absl::AbortedError(fmt::format("{}", fmt::join(what, "; ")));
}

absl::Status Run::FinishSaving(bool trained) {
  if (!checkpointer_) return absl::OkStatus();
  const bool was_busy = checkpointer_->busy();
  absl::Status status = checkpointer_->Wait();
  if (trained || !was_busy) return status;
  Note(status.ok() ? fmt::format("{} is complete", checkpointer_->newest())
                   : std::string(status.message()));
  return status;
}

absl::StatusOr<RunResult> Run::Finish(const absl::Status& trained) {
  // What a save reads besides its copies lives here.
  const absl::Status saved_last = FinishSaving(trained.ok());
  if (!trained.ok()) return RunFailure(trained);
  if (!saved_last.ok()) return RunFailure(saved_last);
  return result_;
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

}  // namespace mw::train
