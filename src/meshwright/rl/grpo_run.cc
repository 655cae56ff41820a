#include "meshwright/rl/grpo_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/rl/batch_maker.h"
#include "meshwright/rl/batch_times.h"
#include "meshwright/rl/grpo_settings.h"
#include "meshwright/rl/policy_sampler.h"
#include "meshwright/rl/prompts.h"
#include "meshwright/rl/reward.h"
#include "meshwright/rl/rollout_metrics.h"
#include "meshwright/rl/rollout_scorer.h"
#include "meshwright/rl/rollouts.h"
#include "meshwright/rl/sample_batch.h"
#include "meshwright/rl/sample_log.h"
#include "meshwright/rl/sample_rollouts.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/stop_tokens.h"
#include "meshwright/train/training_data.h"

namespace mw::rl {
namespace {

using train::MetricRecord;

// Keeps the noise of measured samples apart from that of learned ones.
constexpr uint64_t kEvalStream = 0x6576616c;

class GrpoRun : public train::Run {
 public:
  GrpoRun(std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
          const train::TrainConfig& config, const GrpoOptions& options)
      : Run(std::move(client), cache, config, options),
        options_(options),
        sample_log_(options.out) {
    has_eval_data_ = !options.eval_data.empty();
  }

  absl::StatusOr<train::RunResult> RunAll(const std::atomic<bool>& stop) {
    MW_RETURN_IF_ERROR(FinishGrpoSettings(config_));
    RewardContext rewards;
    rewards.options = config_.policy.reward;
    rewards.max_new_tokens = config_.generation.max_new_tokens;
    rewards.note = [this](std::string_view sentence) { Note(sentence); };
    MW_ASSIGN_OR_RETURN(rewards_, RewardSum::Create(options_.rewards, rewards));
    MW_ASSIGN_OR_RETURN(const bool has_steps, OpenModels());
    if (!has_steps) return result_;
    MW_RETURN_IF_ERROR(OpenPrompts());
    if (stop.load()) return Stopped();
    MW_ASSIGN_OR_RETURN(const data::Batch dummy, MakeMicroBatch({}, row_shape()));
    MW_RETURN_IF_ERROR(MakeRunEngine(dummy));
    if (stop.load()) return Stopped();
    MW_RETURN_IF_ERROR(OpenReference());
    const data::Tokenizer* const tokenizer = reader_.tokenizer ? &*reader_.tokenizer : nullptr;
    MW_ASSIGN_OR_RETURN(
        policy_,
        PolicySampler::Create(
            client_, cache_, model_->model.get(), config_, sampler_length_, engine_.get(),
            tokenizer, {train::StopTokens(asked_, tokenizer, reader_.chat()), options_.stop}));
    const RolloutScorer scorer(&config_, engine_.get(), reference_.get());
    const BatchMaker maker({.config = &config_,
                            .prompts = &prompts_,
                            .source = source_.get(),
                            .policy = policy_.get(),
                            .rewards = &rewards_,
                            .scorer = &scorer,
                            .note = [this](std::string_view sentence) { Note(sentence); }});
    return Finish(Train(maker, stop));
  }

 protected:
  // Everything that follows from the prompts, before what is continued is compared with it.
  absl::Status OpenData() override {
    MW_ASSIGN_OR_RETURN(reader_, train::OpenTextReader(asked_, config_.chat_template));
    const int64_t longest = config_.given.contains("max_target_length")
                                ? config_.data.max_target_length
                                : asked_.config.max_position;
    const int64_t max_new_tokens = config_.generation.max_new_tokens;
    if (longest <= max_new_tokens) {
      return absl::InvalidArgumentError(fmt::format(
          "max_new_tokens={} leaves no room for a prompt in the {} tokens of a row: "
          "lower it{}",
          max_new_tokens, longest,
          config_.given.contains("max_target_length") ? ", or raise max_target_length" : ""));
    }
    const auto load = [&](const std::vector<std::string>& paths) {
      return LoadPolicyPrompts(paths, reader_, asked_.config, longest - max_new_tokens, rewards_);
    };
    MW_ASSIGN_OR_RETURN(prompts_, load(options_.data));
    if (has_eval_data_) {
      MW_ASSIGN_OR_RETURN(eval_prompts_, load({options_.eval_data}));
    }
    if (!config_.given.contains("max_target_length")) {
      config_.data.max_target_length = prompts_.longest + max_new_tokens;
    }
    config_.engine.loss.grpo.max_segments = MaxSegments(config_, prompts_.Lengths());
    if (config_.given.contains("packing") && config_.data.packing && loss().max_segments == 1) {
      Note(fmt::format(
          "packing=true: rows of {} tokens have room for one sample each, of a prompt of {} and "
          "more; a larger max_target_length, with a smaller batch_size, makes room for several",
          config_.data.max_target_length, prompts_.shortest));
    }
    sampler_length_ = std::max(prompts_.longest, eval_prompts_.longest) + max_new_tokens;
    return absl::OkStatus();
  }

  absl::Status WriteRunFiles() override {
    return sample_log_.Begin(options_.resume, last_sampled_step_);
  }

  absl::Status AddToCheckpoint(train::CheckpointJob& job) override {
    if (progress_.batch) WriteSamples();
    progress_.AddTo(config_, prompts_.Fingerprint(), job);
    if (!reference_fingerprint_.empty()) {
      job.state.metadata[kReferenceFingerprint] = reference_fingerprint_;
    }
    return absl::OkStatus();
  }

 private:
  static constexpr const char* kReferenceFingerprint = "reference_fingerprint";

  const train::PolicyOptions& policy() const { return config_.policy; }
  const train::GrpoOptions& loss() const { return config_.engine.loss.grpo; }
  BatchPlan plan() const { return BatchPlan::Of(config_); }
  RowShape row_shape() const { return RowShapeOf(config_); }

  absl::Status OpenPrompts() {
    MW_ASSIGN_OR_RETURN(const auto examples, prompts_.Examples());
    data::DataIteratorOptions drawing = config_.data;
    drawing.batch_size = policy().prompts_per_step;
    drawing.packing = false;
    MW_ASSIGN_OR_RETURN(source_, data::DataIterator::Create(examples, drawing));
    MW_RETURN_IF_ERROR(RestorePosition(*source_));
    if (!loss().has_old_log_probs && loss().algorithm != "reinforce") {
      Note(
          "samples are learned in one update, so ratios are 1 and nothing is clipped: loss.clip_… "
          "do nothing until num_iterations or a smaller gradient_accumulation_steps makes more of "
          "it");
    }
    if (const train::CheckpointState* const saved = saved_state()) {
      const std::string& folder =
          saved_->model.adapter ? saved_->model.adapter->path : saved_->model.path;
      MW_ASSIGN_OR_RETURN(progress_, GrpoProgress::Read(*saved, folder, options_.out, config_,
                                                        prompts_.Fingerprint()));
      if (!progress_.rewards.empty() && progress_.rewards != options_.rewards) {
        Note(fmt::format("rewards differ from those before: {} (was {})",
                         fmt::join(options_.rewards, ", "), fmt::join(progress_.rewards, ", ")));
      }
      last_sampled_step_ = progress_.batch ? progress_.batch->first_step : saved->engine.step;
    }
    progress_.rewards = options_.rewards;
    return absl::OkStatus();
  }

  absl::Status OpenReference() {
    if (loss().kl_coef == 0) return absl::OkStatus();
    if (config_.engine.model.lora.enabled()) {
      if (asked_.adapter) {
        Note("the reference of loss.kl_coef is the base model, without the adapter of --model");
      }
      return absl::OkStatus();
    }
    MW_ASSIGN_OR_RETURN(reference_fingerprint_, train::BaseFingerprint(asked_));
    if (const train::CheckpointState* const saved = saved_state()) {
      const auto it = saved->metadata.find(kReferenceFingerprint);
      if (it != saved->metadata.end() && it->second != reference_fingerprint_) {
        return absl::FailedPreconditionError(fmt::format(
            "--model {} is not the model with which the run in {} began, its reference: resume "
            "with that",
            asked_.origin, options_.out));
      }
    }
    MW_ASSIGN_OR_RETURN(reference_, MakeReference(client_, cache_, asked_, config_));
    return absl::OkStatus();
  }

  absl::Status Train(const BatchMaker& maker, const std::atomic<bool>& stop) {
    if (IsFirstMeasured()) MW_RETURN_IF_ERROR(Measure(stop).status());
    record_end_ = Clock::now();
    while (engine_->step() < config_.steps && !stop.load()) {
      if (!progress_.batch) {
        const absl::Status made = MakeBatch(maker, stop);
        if (absl::IsCancelled(made) && stop.load()) break;
        if (!made.ok()) return SavedBefore(made);
      }
      MW_ASSIGN_OR_RETURN(const bool whole, LearnOnce(stop));
      if (!whole) break;
      const int64_t step = engine_->step();
      if (IsSaved(step) && !stop.load()) MW_RETURN_IF_ERROR(Save(/*last=*/false));
      if (IsMeasured(step) && step < config_.steps && !stop.load()) {
        if (const auto measured = Measure(stop); !measured.ok()) {
          return SavedBefore(measured.status());
        }
        record_end_ = Clock::now();
      }
    }
    return FinishSteps(stop, [&] { return Measure(stop); });
  }

  // A reward that fails takes nothing with it that was learned: that is saved, and `failure` says
  // so.
  absl::Status SavedBefore(const absl::Status& failure) {
    if (!opened_ || !absl::IsAborted(failure)) return failure;
    const absl::Status saved = Save(/*last=*/true);
    const std::string what(failure.message());
    if (!saved.ok()) {
      return absl::AbortedError(fmt::format("{}; and {}", what, std::string(saved.message())));
    }
    if (result_.checkpoint.empty()) return failure;
    return absl::AbortedError(fmt::format("{}; --resume continues {}", what, result_.checkpoint));
  }

  // Until the batch is there, nothing has changed that a checkpoint holds. Errors: Cancelled once
  // `stop` is true.
  absl::Status MakeBatch(const BatchMaker& maker, const std::atomic<bool>& stop) {
    times_ = {};
    MW_ASSIGN_OR_RETURN(progress_.batch,
                        maker.Make(engine_->step() + 1, progress_.num_draws, stop, times_));
    position_ = update_position_ = source_->state();
    return absl::OkStatus();
  }

  // The next update of the batch under way. False: `stop` came first.
  absl::StatusOr<bool> LearnOnce(const std::atomic<bool>& stop) {
    const int64_t pass_update = progress_.batch->num_updates % plan().updates_per_pass();
    const int64_t begin = pass_update * plan().rows_per_update;
    const int64_t count = std::min(plan().rows_per_update, plan().num_rows - begin);
    const std::span<const Rollout> rows =
        std::span<const Rollout>(progress_.batch->rollouts)
            .subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    const auto parts = SplitRows(rows, row_shape());
    const Clock::time_point start = Clock::now();
    while (engine_->num_micro_batches() < std::ssize(parts)) {
      if (stop.load()) return false;
      MW_ASSIGN_OR_RETURN(
          const data::Batch batch,
          MakeMicroBatch(parts[static_cast<size_t>(engine_->num_micro_batches())], row_shape()));
      MW_RETURN_IF_ERROR(Dispatch(batch));
    }
    MW_ASSIGN_OR_RETURN(const std::vector<train::StepMetrics> metrics,
                        DispatchUpdate(/*wait=*/true));
    MW_RETURN_IF_ERROR(RecordUpdate(metrics, SecondsSince(start)));
    ++progress_.batch->num_updates;
    if (progress_.batch->num_updates == plan().updates_per_batch()) progress_.batch.reset();
    return true;
  }

  // With what the batch has to tell in the record of its first update.
  absl::Status RecordUpdate(const std::vector<train::StepMetrics>& metrics, double training_s) {
    std::vector<MetricRecord> records = ToRecords(metrics);
    MetricRecord& record = records.back();
    WriteSamples();
    if (progress_.batch->num_updates == 0) {
      MetricRecord merged = progress_.batch->metrics;
      merged.step = record.step;
      for (const auto& [name, value] : record.values) merged.Set(name, value);
      record = std::move(merged);
    }
    const double wall_s = SecondsSince(record_end_);
    record_end_ = Clock::now();
    const double known_s = times_.sampling_s + times_.rewards_s + times_.log_probs_s + training_s;
    record.Set("perf/sampling_seconds", times_.sampling_s);
    record.Set("perf/rewards_seconds", times_.rewards_s);
    record.Set("perf/log_probs_seconds", times_.log_probs_s);
    record.Set("perf/training_seconds", training_s);
    record.Set("perf/other_seconds", std::max(0.0, wall_s - known_s));
    if (const double sampling_s = times_.sampling_s - times_.compile_s; sampling_s > 0) {
      record.Set("perf/sampling_tokens_per_second",
                 static_cast<double>(times_.sampled_tokens) / sampling_s);
    }
    times_ = {};
    return Record(std::move(records));
  }

  // Where nothing was written yet, the folder is not open either.
  void WriteSamples() {
    std::string& lines = progress_.batch->lines;
    if (lines.empty()) return;
    // Training is worth more than its log.
    if (const absl::Status written = sample_log_.Append(lines); !written.ok()) {
      Note(fmt::format("samples are no longer written: {}", std::string(written.message())));
      LoseLog(std::string(written.message()));
    }
    lines.clear();
  }

  // False when there is something to measure and `stop` came first.
  absl::StatusOr<bool> Measure(const std::atomic<bool>& stop) {
    if (!has_eval_data_) return true;
    std::vector<int64_t> prompts;
    for (int64_t i = 0; i < std::ssize(eval_prompts_.rows); ++i) prompts.push_back(i);
    BatchTimes times;  // of no batch
    const auto rollouts = SampleRollouts(*policy_, rewards_, eval_prompts_, prompts,
                                         {.num_samples = 1,
                                          .temperature = policy().eval_temperature,
                                          .seed = MixSeed(config_.data.seed, kEvalStream)},
                                         stop, times);
    if (absl::IsCancelled(rollouts.status()) && stop.load()) return false;
    MW_RETURN_IF_ERROR(rollouts.status());
    MetricRecord record;
    record.step = engine_->step();
    AddEvalMetrics(*rollouts, rewards_.names(), record);
    MW_RETURN_IF_ERROR(RecordMeasurement(std::move(record)));
    return true;
  }

  const GrpoOptions& options_;
  SampleLog sample_log_;
  RewardSum rewards_;
  train::TextReader reader_;
  Prompts prompts_;
  Prompts eval_prompts_;
  int64_t sampler_length_ = 0;  // longest prompt and completion
  std::unique_ptr<data::DataIterator> source_;
  std::unique_ptr<train::Engine> reference_;  // null: none, or the engine's without its adapters
  std::string reference_fingerprint_;
  std::unique_ptr<PolicySampler> policy_;
  GrpoProgress progress_;
  int64_t last_sampled_step_ = 0;  // of the lines of samples.jsonl that a continued run keeps
  BatchTimes times_;
  Clock::time_point record_end_;
};

}  // namespace

absl::StatusOr<train::RunResult> RunGrpo(std::shared_ptr<const runtime::Client> client,
                                         runtime::ExecutableCache* cache,
                                         const train::TrainConfig& config,
                                         const GrpoOptions& options,
                                         const std::atomic<bool>& stop) {
  return GrpoRun(std::move(client), cache, config, options).RunAll(stop);
}

}  // namespace mw::rl
