#include "meshwright/rl/grpo_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/rl/advantages.h"
#include "meshwright/rl/grpo_settings.h"
#include "meshwright/rl/policy_sampler.h"
#include "meshwright/rl/prompts.h"
#include "meshwright/rl/reward.h"
#include "meshwright/rl/rollout_metrics.h"
#include "meshwright/rl/rollouts.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/stop_tokens.h"
#include "meshwright/train/training_data.h"

namespace mw::rl {
namespace {

using train::MetricRecord;
using Clock = std::chrono::steady_clock;

constexpr const char* kRolloutsFile = "rollouts.safetensors";
constexpr const char* kSamplesFile = "samples.jsonl";
// In the metadata of checkpoints.
constexpr const char* kProgress = "grpo";
constexpr const char* kPromptsFingerprint = "prompts";
// Shown for each batch in TensorBoard.
constexpr size_t kShownSamples = 4;
// Keeps the noise of measured samples apart from that of learned ones.
constexpr uint64_t kEvalStream = 0x6576616c;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014) of both.
uint64_t MixSeed(uint64_t seed, uint64_t stream) {
  uint64_t x = seed + 0x9e3779b97f4a7c15u * (stream + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Where the time of a batch went.
struct BatchTimes {
  double sampling_s = 0;
  double rewards_s = 0;
  double log_probs_s = 0;
  double compile_s = 0;  // of the sampler, part of sampling_s
  int64_t sampled_tokens = 0;
};

// A batch of samples, from its draw to its last update.
struct SampleBatch {
  std::vector<Rollout> rollouts;
  int64_t first_step = 0;   // the update that learns it first
  int64_t num_updates = 0;  // done
  MetricRecord metrics;     // for that update's record
  std::string lines;        // for samples.jsonl, until they are written
};

class GrpoRun : public train::Run {
 public:
  GrpoRun(std::shared_ptr<const runtime::Client> client, runtime::ExecutableCache* cache,
          const train::TrainConfig& config, const GrpoOptions& options)
      : Run(std::move(client), cache, config, options), options_(options) {
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
    return Finish(Train(stop));
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
    sampler_length_ = std::max(prompts_.longest, eval_prompts_.longest) + max_new_tokens;
    return absl::OkStatus();
  }

  absl::Status WriteRunFiles() override {
    const std::string path = fmt::format("{}/{}", options_.out, kSamplesFile);
    std::string kept;
    if (options_.resume) {
      MW_ASSIGN_OR_RETURN(kept, train::LinesUpTo(path, last_sampled_step_));
    }
    return io::WriteFile(path, kept);
  }

  absl::Status AddToCheckpoint(train::CheckpointJob& job) override {
    nlohmann::ordered_json progress = {{"draws", num_draws_}};
    if (batch_) {
      MW_RETURN_IF_ERROR(WriteSamples());
      progress["first_step"] = batch_->first_step;
      progress["num_updates"] = batch_->num_updates;
      progress["updates_per_batch"] = plan().updates_per_batch();
      progress["old_log_probs"] = policy().old_log_probs;
      for (const auto& [name, value] : batch_->metrics.values) progress["metrics"][name] = value;
      job.write_model = [write = std::move(job.write_model),
                         tensors = RolloutTensors(batch_->rollouts)](
                            const std::string& dir) mutable -> absl::Status {
        MW_RETURN_IF_ERROR(write(dir));
        return io::WriteSafetensors(fmt::format("{}/{}", dir, kRolloutsFile), std::move(tensors))
            .status();
      };
    }
    job.state.metadata[kProgress] = progress.dump();
    job.state.metadata[kPromptsFingerprint] = fmt::format("{:016x}", prompts_.Fingerprint());
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
  int64_t num_rows() const { return plan().num_rows; }
  RowShape row_shape() const {
    return {config_.data.batch_size, config_.data.max_target_length, config_.data.pad_first};
  }
  train::ScoreOptions score_options() const {
    train::ScoreOptions options;
    options.temperature = loss().temperature;
    return options;
  }

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
      return RestoreProgress(*saved);
    }
    return absl::OkStatus();
  }

  absl::Status RestoreProgress(const train::CheckpointState& saved) {
    const auto find = [&](const char* key) {
      const auto it = saved.metadata.find(key);
      return it == saved.metadata.end() ? std::string() : it->second;
    };
    last_sampled_step_ = saved.engine.step;
    auto progress = nlohmann::ordered_json::parse(find(kProgress), nullptr, false);
    if (!progress.is_object() || !progress.contains("draws")) {
      return absl::FailedPreconditionError(
          fmt::format("the run in {} is none of `meshwright grpo`", options_.out));
    }
    if (find(kPromptsFingerprint) != fmt::format("{:016x}", prompts_.Fingerprint())) {
      return absl::FailedPreconditionError(
          fmt::format("the rows of --data are not those with which the run in {} began: resume "
                      "with the same, or begin another run",
                      options_.out));
    }
    try {
      num_draws_ = progress["draws"].get<int64_t>();
      if (!progress.contains("num_updates")) return absl::OkStatus();
      batch_.emplace();
      batch_->first_step = progress["first_step"].get<int64_t>();
      batch_->num_updates = progress["num_updates"].get<int64_t>();
      for (const auto& entry : progress["metrics"].items()) {
        batch_->metrics.Set(entry.key(), entry.value().get<double>());
      }
    } catch (const nlohmann::ordered_json::exception& error) {
      return absl::DataLossError(fmt::format("{} does not say how far its samples were learned: {}",
                                             CheckpointFolder(), error.what()));
    }
    last_sampled_step_ = batch_->first_step;
    std::map<std::string, HostTensor> tensors;
    const std::string path = fmt::format("{}/{}", CheckpointFolder(), kRolloutsFile);
    MW_ASSIGN_OR_RETURN(const auto file, io::SafetensorsFile::Open(path));
    for (const std::string& name : file->names()) {
      MW_ASSIGN_OR_RETURN(tensors[name], file->Read(name));
    }
    MW_ASSIGN_OR_RETURN(batch_->rollouts, RolloutsOf(tensors));
    if (std::ssize(batch_->rollouts) != num_rows() ||
        progress["updates_per_batch"] != plan().updates_per_batch() ||
        progress["old_log_probs"] != policy().old_log_probs) {
      return absl::FailedPreconditionError(fmt::format(
          "the run in {} is at {} of {} updates of {} samples, which prompts_per_step={}, "
          "num_generations={}, num_iterations={}, batch_size={}, gradient_accumulation_steps={} "
          "and "
          "old_log_probs={} do not continue: resume with the settings of its config.yaml",
          options_.out, batch_->num_updates, progress["updates_per_batch"].dump(),
          batch_->rollouts.size(), policy().prompts_per_step, policy().num_generations,
          policy().num_iterations, config_.data.batch_size, config_.gradient_accumulation_steps,
          policy().old_log_probs));
    }
    for (const Rollout& rollout : batch_->rollouts) {
      const bool has_old = !rollout.old_log_probs.empty() || rollout.num_tokens() == 0;
      const bool has_ref = !rollout.ref_log_probs.empty() || rollout.num_tokens() == 0;
      if ((has_old || !loss().has_old_log_probs) && (has_ref || loss().kl_coef == 0)) continue;
      return absl::FailedPreconditionError(
          fmt::format("the run in {} has samples under way without the log-probs that "
                      "old_log_probs={} and loss.kl_coef={} need: resume with the settings of its "
                      "config.yaml",
                      options_.out, policy().old_log_probs, loss().kl_coef));
    }
    return absl::OkStatus();
  }

  // Of the checkpoint that is continued.
  const std::string& CheckpointFolder() const {
    return saved_->model.adapter ? saved_->model.adapter->path : saved_->model.path;
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
    // No loss of its own: it is only scored with.
    train::TrainConfig scoring = config_;
    scoring.engine.loss = train::LossOptions();
    scoring.engine.loss.head_chunk_tokens = config_.engine.loss.head_chunk_tokens;
    scoring.engine.trainable_parameters.clear();
    MW_ASSIGN_OR_RETURN(reference_, train::MakeEngine(client_, cache_, asked_, scoring,
                                                      /*weights_only=*/true));
    return absl::OkStatus();
  }

  absl::Status Train(const std::atomic<bool>& stop) {
    if (IsFirstMeasured()) MW_RETURN_IF_ERROR(Measure(stop).status());
    record_end_ = Clock::now();
    while (engine_->step() < config_.steps && !stop.load()) {
      if (!batch_) {
        const absl::Status made = MakeBatch(stop);
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

  // Draws, samples, rewards and scores the next batch. Until it is there, nothing has changed that
  // a checkpoint holds. Errors: Cancelled once `stop` is true.
  absl::Status MakeBatch(const std::atomic<bool>& stop) {
    times_ = {};
    SampleBatch batch;
    batch.first_step = engine_->step() + 1;
    int64_t num_groups = 0;
    int64_t num_zero_std = 0;
    int64_t draws = num_draws_;
    std::vector<Rollout> drawn;  // all of them, for metrics
    const int64_t most = policy().max_draws_per_step;
    for (int64_t draw = 0; draw < most && std::ssize(batch.rollouts) < num_rows(); ++draw) {
      MW_ASSIGN_OR_RETURN(std::vector<Rollout> rollouts, Draw(draws++, stop));
      std::vector<int64_t> groups;
      std::vector<double> rewards;
      for (const Rollout& rollout : rollouts) {
        groups.push_back(rollout.group);
        rewards.push_back(rollout.reward);
      }
      MW_ASSIGN_OR_RETURN(const Advantages compared,
                          ComputeAdvantages(groups, rewards, {.mode = "none", .zero_std = "drop"}));
      num_groups += compared.num_groups;
      num_zero_std += compared.num_zero_std_groups;
      drawn.insert(drawn.end(), rollouts.begin(), rollouts.end());
      for (size_t i = 0; i < rollouts.size(); ++i) {
        if (std::ssize(batch.rollouts) == num_rows()) break;
        if (most > 1 && !compared.kept[i]) continue;
        batch.rollouts.push_back(std::move(rollouts[i]));
      }
    }
    const int64_t missing = num_rows() - std::ssize(batch.rollouts);
    if (missing > 0) {
      Note(fmt::format(
          "step {}: {} of {} prompts have rewards that differ after max_draws_per_step={} draws",
          batch.first_step, std::ssize(batch.rollouts) / policy().num_generations,
          policy().prompts_per_step, most));
    }
    MW_RETURN_IF_ERROR(Compare(batch.rollouts, stop));
    AddRolloutMetrics(drawn, rewards_.names(), batch.metrics);
    batch.metrics.Set("rl/frac_reward_zero_std",
                      static_cast<double>(num_zero_std) / static_cast<double>(num_groups));
    if (most > 1) batch.metrics.Set("rl/draws", static_cast<double>(draws - num_draws_));
    // Rows that are not there are rows that are not kept: updates are cut alike.
    std::vector<const Rollout*> shown;
    for (const Rollout& rollout : batch.rollouts) {
      const data::PromptRow& prompt = prompts_.rows[static_cast<size_t>(rollout.prompt)];
      batch.lines += SampleLine(rollout, prompt, batch.first_step, rewards_.names());
      if (rollout.group == batch.rollouts[0].group && shown.size() < kShownSamples) {
        shown.push_back(&rollout);
      }
    }
    if (!shown.empty()) {
      batch.metrics.texts = {
          {"samples", SamplesText(shown, prompts_.rows[static_cast<size_t>(shown[0]->prompt)])}};
    }
    for (int64_t i = 0; i < missing; ++i) {
      Rollout& none = batch.rollouts.emplace_back();
      none.ids = {0};
      none.prompt_tokens = 1;
      none.is_kept = false;
    }
    batch_ = std::move(batch);
    num_draws_ = draws;
    position_ = update_position_ = source_->state();
    return absl::OkStatus();
  }

  // Samples of the next prompts, rewarded.
  absl::StatusOr<std::vector<Rollout>> Draw(int64_t draw, const std::atomic<bool>& stop) {
    MW_ASSIGN_OR_RETURN(const data::Batch drawn, source_->Next());
    std::vector<int64_t> prompts;
    for (const std::vector<int64_t>& row : drawn.example_indices) {
      prompts.insert(prompts.end(), row.begin(), row.end());
    }
    MW_ASSIGN_OR_RETURN(
        std::vector<Rollout> rollouts,
        Sample(prompts_, prompts, policy().num_generations, config_.generation.temperature,
               MixSeed(config_.data.seed, static_cast<uint64_t>(draw)), stop));
    for (Rollout& rollout : rollouts) {
      rollout.group += draw * policy().prompts_per_step;
      rollout.is_masked = policy().mask_truncated_completions && rollout.is_truncated();
    }
    return rollouts;
  }

  absl::StatusOr<std::vector<Rollout>> Sample(const Prompts& from,
                                              const std::vector<int64_t>& prompts,
                                              int64_t num_samples, double temperature,
                                              uint64_t seed, const std::atomic<bool>& stop) {
    std::vector<std::vector<int32_t>> ids;
    for (const int64_t prompt : prompts) ids.push_back(from.rows[static_cast<size_t>(prompt)].ids);
    Clock::time_point start = Clock::now();
    MW_ASSIGN_OR_RETURN(std::vector<PolicySampler::Completion> completions,
                        policy_->Generate(ids, num_samples, temperature, seed, stop));
    times_.compile_s += policy_->stats().compile_s;
    times_.sampled_tokens += policy_->stats().new_tokens;
    std::vector<Rollout> rollouts;
    std::vector<RewardInput> inputs;
    for (auto& [sample, text] : completions) {
      const auto prompt = static_cast<size_t>(prompts[static_cast<size_t>(sample.prompt)]);
      const data::PromptRow& row = from.rows[prompt];
      Rollout& rollout = rollouts.emplace_back();
      rollout.prompt = static_cast<int64_t>(prompt);
      rollout.group = sample.prompt;
      rollout.ids = row.ids;
      rollout.ids.insert(rollout.ids.end(), sample.tokens.begin(), sample.tokens.end());
      rollout.prompt_tokens = std::ssize(row.ids);
      rollout.sampler_log_probs = std::move(sample.log_probs);
      rollout.finish_reason = sample.finish_reason;
      rollout.completion = std::move(text);
      inputs.push_back({.row_id = row.id,
                        .prompt = row.text,
                        .completion = rollout.completion,
                        .row = &from.fields[prompt],
                        .num_tokens = rollout.num_tokens()});
    }
    times_.sampling_s += SecondsSince(start);
    start = Clock::now();
    MW_ASSIGN_OR_RETURN(RewardSum::Scores scores, rewards_.Score(inputs, &stop));
    for (size_t i = 0; i < rollouts.size(); ++i) {
      rollouts[i].reward = scores.totals[i];
      rollouts[i].reward_parts = std::move(scores.parts[i]);
    }
    times_.rewards_s += SecondsSince(start);
    return rollouts;
  }

  // Gives the rollouts the log-probs that are wanted and their advantages.
  absl::Status Compare(std::vector<Rollout>& rollouts, const std::atomic<bool>& stop) {
    if (rollouts.empty()) return absl::OkStatus();
    const Clock::time_point start = Clock::now();
    if (policy().old_log_probs == "sampler") {
      for (Rollout& rollout : rollouts) rollout.old_log_probs = rollout.sampler_log_probs;
    } else if (loss().has_old_log_probs) {
      MW_RETURN_IF_ERROR(ScoreRollouts(*engine_, score_options(), row_shape(),
                                       &Rollout::old_log_probs, rollouts, stop));
    }
    if (loss().kl_coef != 0) {
      train::ScoreOptions options = score_options();
      options.without_adapters = reference_ == nullptr;
      MW_RETURN_IF_ERROR(ScoreRollouts(reference_ ? *reference_ : *engine_, options, row_shape(),
                                       &Rollout::ref_log_probs, rollouts, stop));
    }
    times_.log_probs_s += SecondsSince(start);
    std::vector<int64_t> groups;
    std::vector<double> rewards;
    for (const Rollout& rollout : rollouts) {
      groups.push_back(rollout.group);
      rewards.push_back(rollout.reward);
    }
    if (loss().kl_coef != 0 && loss().kl_in == "reward") {
      MW_ASSIGN_OR_RETURN(rewards, LessKl(rewards, rollouts));
    }
    MW_ASSIGN_OR_RETURN(const Advantages advantages,
                        ComputeAdvantages(groups, rewards, policy().advantage));
    for (size_t i = 0; i < rollouts.size(); ++i) {
      rollouts[i].advantage = advantages.values[i];
      rollouts[i].is_kept = advantages.kept[i];
    }
    return absl::OkStatus();
  }

  // Against the trainer's log-probs where it has scored the samples, else the sampler's.
  absl::StatusOr<std::vector<double>> LessKl(const std::vector<double>& rewards,
                                             const std::vector<Rollout>& rollouts) const {
    const Dims dims = {std::ssize(rollouts), config_.generation.max_new_tokens};
    HostTensor old = HostTensor::Zeros(DType::kF32, dims);
    HostTensor ref = HostTensor::Zeros(DType::kF32, dims);
    HostTensor mask = HostTensor::Zeros(DType::kF32, dims);
    size_t row_begin = 0;
    for (const Rollout& rollout : rollouts) {
      const std::vector<float>& before =
          rollout.old_log_probs.empty() ? rollout.sampler_log_probs : rollout.old_log_probs;
      for (size_t t = 0; t < before.size() && !rollout.is_masked; ++t) {
        old.mutable_as<float>()[row_begin + t] = before[t];
        ref.mutable_as<float>()[row_begin + t] = rollout.ref_log_probs[t];
        mask.mutable_as<float>()[row_begin + t] = 1;
      }
      row_begin += static_cast<size_t>(dims[1]);
    }
    return RewardsLessKl(rewards, old, ref, mask, loss());
  }

  // The next update of the batch under way. False: `stop` came first.
  absl::StatusOr<bool> LearnOnce(const std::atomic<bool>& stop) {
    const int64_t pass_update = batch_->num_updates % plan().updates_per_pass();
    const int64_t begin = pass_update * plan().rows_per_update;
    const int64_t count = std::min(plan().rows_per_update, num_rows() - begin);
    const std::span<const Rollout> rows =
        std::span<const Rollout>(batch_->rollouts)
            .subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    const auto parts = SplitRows(rows, config_.data.batch_size);
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
    ++batch_->num_updates;
    if (batch_->num_updates == plan().updates_per_batch()) batch_.reset();
    return true;
  }

  // With what the batch has to tell in the record of its first update.
  absl::Status RecordUpdate(const std::vector<train::StepMetrics>& metrics, double training_s) {
    std::vector<MetricRecord> records = ToRecords(metrics);
    MetricRecord& record = records.back();
    MW_RETURN_IF_ERROR(WriteSamples());
    if (batch_->num_updates == 0) {
      MetricRecord merged = batch_->metrics;
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
  absl::Status WriteSamples() {
    if (batch_->lines.empty()) return absl::OkStatus();
    const std::string path = fmt::format("{}/{}", options_.out, kSamplesFile);
    std::ofstream file(path, std::ios::binary | std::ios::app);
    file << batch_->lines;
    file.close();
    // Training is worth more than its log.
    if (!file) Note(fmt::format("{} could not be written: samples are missing there", path));
    batch_->lines.clear();
    return absl::OkStatus();
  }

  // False when there is something to measure and `stop` came first.
  absl::StatusOr<bool> Measure(const std::atomic<bool>& stop) {
    if (!has_eval_data_) return true;
    std::vector<int64_t> prompts;
    for (int64_t i = 0; i < std::ssize(eval_prompts_.rows); ++i) prompts.push_back(i);
    const BatchTimes before = times_;
    const auto rollouts = Sample(eval_prompts_, prompts, 1, policy().eval_temperature,
                                 MixSeed(config_.data.seed, kEvalStream), stop);
    times_ = before;
    if (absl::IsCancelled(rollouts.status()) && stop.load()) return false;
    MW_RETURN_IF_ERROR(rollouts.status());
    MetricRecord record;
    record.step = engine_->step();
    AddEvalMetrics(*rollouts, rewards_.names(), record);
    MW_RETURN_IF_ERROR(RecordMeasurement(std::move(record)));
    return true;
  }

  const GrpoOptions& options_;
  RewardSum rewards_;
  train::TextReader reader_;
  Prompts prompts_;
  Prompts eval_prompts_;
  int64_t sampler_length_ = 0;  // longest prompt and completion
  std::unique_ptr<data::DataIterator> source_;
  std::unique_ptr<train::Engine> reference_;  // null: none, or the engine's without its adapters
  std::string reference_fingerprint_;
  std::unique_ptr<PolicySampler> policy_;
  std::optional<SampleBatch> batch_;  // under way
  int64_t num_draws_ = 0;             // of prompts_per_step prompts, in the whole run
  int64_t last_sampled_step_ = 0;     // of the lines of samples.jsonl that a continued run keeps
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
