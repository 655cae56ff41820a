#include "meshwright/train/sft.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/reference_log_probs.h"
#include "meshwright/train/teacher.h"
#include "meshwright/train/training_data.h"

namespace mw::train {
namespace {

constexpr int kPrefetchedBatches = 2;

class SftRun : public Run {
 public:
  SftRun(std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
         const TrainConfig& config, const SftOptions& options)
      : Run(std::move(client), cache, config, options), options_(options) {
    has_eval_data_ = !options.eval_data.empty();
  }

  absl::StatusOr<SftResult> RunAll(const std::atomic<bool>& stop) {
    if (config_.engine.loss.name == "grpo") {
      return absl::InvalidArgumentError(
          "loss.name=grpo learns from samples and their rewards, which sft does not make: "
          "give sft, dpo or distill, or use `meshwright grpo`");
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
    MW_ASSIGN_OR_RETURN(const bool has_steps, OpenModels());
    if (!has_steps) return result_;
    MW_RETURN_IF_ERROR(OpenDatasets());
    if (stop.load()) return Stopped();
    if (distills) MW_RETURN_IF_ERROR(OpenTeacher(asked_, saved_state()));
    MW_ASSIGN_OR_RETURN(const data::Batch empty, EmptyBatch(*dataset_, config_));
    MW_RETURN_IF_ERROR(MakeRunEngine(empty));
    if (stop.load()) return Stopped();
    const absl::Status referred = OpenReference(asked_, stop);
    if (absl::IsCancelled(referred) && stop.load()) return Stopped();
    MW_RETURN_IF_ERROR(referred);
    return Finish(Train(stop));
  }

 private:
  absl::Status OpenDatasets() {
    MW_ASSIGN_OR_RETURN(dataset_, LoadTrainingData(asked_, options_.data, config_));
    for (const std::string& warning : dataset_->report().Warnings()) Note(warning);
    if (!options_.eval_data.empty()) {
      MW_ASSIGN_OR_RETURN(eval_dataset_, LoadTrainingData(asked_, {options_.eval_data}, config_));
    }
    MW_ASSIGN_OR_RETURN(std::unique_ptr<data::DataIterator> source,
                        data::DataIterator::Create(dataset_, config_.data));
    MW_RETURN_IF_ERROR(RestorePosition(*source));
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

  absl::Status WriteRunFiles() override {
    if (!reference_ || options_.resume) return absl::OkStatus();
    std::map<std::string, const ReferenceLogProbs*> by_name = {{"--data", &*reference_}};
    if (eval_reference_) by_name["--eval-data"] = &*eval_reference_;
    return WriteReference(options_.out, by_name, reference_facts_);
  }

  absl::Status AddToCheckpoint(CheckpointJob& job) override {
    if (teacher_) job.state.metadata["teacher"] = teacher_name_;
    return absl::OkStatus();
  }

  absl::Status Train(const std::atomic<bool>& stop) {
    if (IsFirstMeasured()) MW_RETURN_IF_ERROR(Measure(stop).status());
    while (engine_->step() < config_.steps && !stop.load()) {
      while (NeedsMicroBatch() && !stop.load()) {
        MW_ASSIGN_OR_RETURN(data::Batch batch, batches_->Next());
        if (fill_) MW_RETURN_IF_ERROR(fill_(batch));
        // The batch may have been waited for.
        if (stop.load()) break;
        MW_RETURN_IF_ERROR(Dispatch(batch));
        position_ = batches_->state();
      }
      if (NeedsMicroBatch()) break;
      MW_ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, DispatchUpdate());
      MW_RETURN_IF_ERROR(Record(ToRecords(metrics)));
      const int64_t step = engine_->step();
      if (IsSaved(step) && !stop.load()) MW_RETURN_IF_ERROR(Save(/*last=*/false));
      if (IsMeasured(step) && step < config_.steps && !stop.load()) {
        MW_RETURN_IF_ERROR(RecordAll());
        MW_RETURN_IF_ERROR(Measure(stop).status());
      }
    }
    return FinishSteps(
        stop, [&] { return Measure(stop); }, ": `meshwright eval` does that");
  }

  bool NeedsMicroBatch() const {
    return engine_->num_micro_batches() < config_.gradient_accumulation_steps;
  }

  // False when there is something to measure and `stop` came first.
  absl::StatusOr<bool> Measure(const std::atomic<bool>& stop) {
    if (!eval_dataset_) return true;
    const auto metrics = Evaluate(*engine_, eval_dataset_, config_, &stop, fill_eval_);
    if (absl::IsCancelled(metrics.status()) && stop.load()) return false;
    MW_RETURN_IF_ERROR(metrics.status());
    MW_RETURN_IF_ERROR(RecordMeasurement(metrics->ToRecord(engine_->step())));
    return true;
  }

  const SftOptions& options_;
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
};

}  // namespace

absl::StatusOr<SftResult> RunSft(std::shared_ptr<const runtime::Client> client,
                                 runtime::ExecutableCache* cache, const TrainConfig& config,
                                 const SftOptions& options, const std::atomic<bool>& stop) {
  return SftRun(std::move(client), cache, config, options).RunAll(stop);
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

}  // namespace mw::train
