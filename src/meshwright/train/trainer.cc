#include "meshwright/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "meshwright/base/one_of.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/io/file_util.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/checkpoint.h"
#include "meshwright/train/device_session.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/export_model.h"
#include "meshwright/train/hf_tensors.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/resume.h"
#include "meshwright/train/run_folder.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/step_params.h"
#include "meshwright/train/training_data.h"

namespace mw::train {

namespace {

// Settings of the loop of `meshwright sft`, which a Trainer's program writes itself.
constexpr const char* kLoopKeys[] = {"gradient_accumulation_steps", "log_period", "eval_interval",
                                     "tensorboard", "async_checkpointing"};

absl::Status CheckLoopKeys(const TrainConfig& config) {
  static const auto* const defaults = new TrainConfig();
  for (const ConfigField& field : ConfigFields()) {
    const std::string_view key = field.key;
    const bool of_sft = std::ranges::find(kLoopKeys, key) != std::end(kLoopKeys);
    const bool of_grpo = std::ranges::find(PolicyKeys(), key) != PolicyKeys().end();
    if (!(of_sft || of_grpo) || ConfigValue(config, field) == ConfigValue(*defaults, field)) {
      continue;
    }
    return absl::InvalidArgumentError(
        fmt::format("{}={} is a setting of the loop of `meshwright {}`, and a Trainer's program "
                    "has its own: leave it out",
                    key, ConfigValue(config, field), of_grpo ? "grpo" : "sft"));
  }
  return absl::OkStatus();
}

// Errors: InvalidArgument for another loss, an unknown word and what the loss refuses.
absl::Status TakeBatchHolds(const std::vector<std::string>& holds, LossOptions& loss) {
  if (loss.name != "grpo") {
    return absl::InvalidArgumentError(fmt::format(
        "what batches hold is said ({}) with loss.name={}, and only grpo leaves it open: leave it "
        "out",
        fmt::join(holds, ","), loss.name));
  }
  bool* const flags[] = {&loss.grpo.has_old_log_probs, &loss.grpo.has_sampler_log_probs,
                         &loss.grpo.has_token_advantages};
  for (bool* const flag : flags) *flag = false;
  loss.grpo.max_segments = 1;
  for (const std::string& word : holds) {
    constexpr std::string_view kSegments = "segments=";
    if (word.starts_with(kSegments)) {
      const char* const end = word.data() + word.size();
      const auto [stop, error] =
          std::from_chars(word.data() + kSegments.size(), end, loss.grpo.max_segments);
      if (error == std::errc() && stop == end && loss.grpo.max_segments >= 1) continue;
      return absl::InvalidArgumentError(fmt::format(
          "{}: say how many sequences a row of the batches holds at most, such as segments=8",
          word));
    }
    MW_ASSIGN_OR_RETURN(
        const size_t place,
        OneOf("what batches hold", word, {"old_logprobs", "sampler_logprobs", "token_advantages"}));
    *flags[place] = true;
  }
  return loss.Validate();
}

}  // namespace

class Trainer::Impl {
 public:
  absl::Status Init(TrainerOptions options) {
    options_ = std::move(options);
    MW_ASSIGN_OR_RETURN(config_, LoadConfig(options_.config_file, options_.settings));
    MW_RETURN_IF_ERROR(CheckLoopKeys(config_));
    MW_ASSIGN_OR_RETURN(const runtime::DeviceSpec device,
                        runtime::ParseDeviceSpec(options_.device));
    MW_ASSIGN_OR_RETURN(config_.engine.mesh, config_.mesh.Resolve(device.num_devices));
    config_.engine.loss_fn = options_.loss;
    config_.engine.on_notice = options_.note;
    config_.engine.on_compiling = options_.on_compiling;
    if (options_.batch_holds) {
      MW_RETURN_IF_ERROR(TakeBatchHolds(*options_.batch_holds, config_.engine.loss));
    }
    recorder_ = MetricsRecorder(options_.note);
    MW_ASSIGN_OR_RETURN(model_, OpenModel(options_.model));
    if (const int64_t segments = config_.engine.loss.grpo.max_segments;
        segments > model_.config.max_position) {
      return absl::InvalidArgumentError(
          fmt::format("segments={0}: a row has at most {1} tokens, and so as many sequences; use "
                      "segments={1} or less",
                      segments, model_.config.max_position));
    }
    MW_RETURN_IF_ERROR(VerifyFiles(model_));
    data_note_ = config_.AdaptTo(model_.config);
    MW_RETURN_IF_ERROR(CheckTargetLength(model_.config, config_.data.max_target_length));
    MW_RETURN_IF_ERROR(TakeAdapter(model_, &config_.engine.model.lora));
    if (config_.engine.model.lora.enabled()) {
      MW_ASSIGN_OR_RETURN(base_fingerprint_, BaseFingerprint(model_));
    }
    if (!options_.out.empty()) MW_RETURN_IF_ERROR(CheckWritable(options_.out));
    MW_ASSIGN_OR_RETURN(
        session_,
        OpenDeviceSession(options_.device, config_.engine.mesh.partition.mesh, options_.note));
    MW_ASSIGN_OR_RETURN(engine_, MakeEngine(session_.client, session_.cache.get(), model_, config_,
                                            /*weights_only=*/false));
    return absl::OkStatus();
  }

  void Note(const std::string& sentence) const {
    if (options_.note && !sentence.empty()) options_.note(sentence);
  }

  absl::Status OpenData(const std::vector<std::string>& paths) {
    Note(std::exchange(data_note_, {}));
    MW_ASSIGN_OR_RETURN(const auto dataset, LoadTrainingData(model_, paths, config_));
    for (const std::string& warning : dataset->report().Warnings()) Note(warning);
    MW_ASSIGN_OR_RETURN(data_, data::DataIterator::Create(dataset, config_.data));
    update_position_ = data_->state();
    return absl::OkStatus();
  }

  absl::StatusOr<data::Batch> NextBatch() {
    if (data_ == nullptr) {
      return absl::FailedPreconditionError("NextBatch was called without data; call OpenData");
    }
    return data_->Next();
  }

  absl::StatusOr<data::Batch> Input(const data::Batch& batch) const {
    if (!options_.model_input) return batch;
    return options_.model_input(batch);
  }

  absl::StatusOr<std::vector<data::Batch>> Inputs(std::span<const data::Batch> batches) const {
    std::vector<data::Batch> inputs;
    for (const data::Batch& batch : batches) {
      MW_ASSIGN_OR_RETURN(data::Batch input, Input(batch));
      inputs.push_back(std::move(input));
    }
    return inputs;
  }

  // After the dispatch of an update: the metrics of those before it.
  absl::Status FinishUpdate() {
    if (data_ != nullptr) update_position_ = data_->state();
    return Record(/*wait=*/false);
  }

  absl::Status Record(bool wait) {
    MW_ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, engine_->TakeMetrics(wait));
    for (const StepMetrics& step : metrics) {
      const MetricRecord record = step.ToRecord();
      MW_RETURN_IF_ERROR(recorder_.Record(record));
      if (options_.on_record) options_.on_record(record);
    }
    return absl::OkStatus();
  }

  absl::Status CheckBetweenSteps(const char* what) const {
    if (engine_->num_micro_batches() == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        fmt::format("{} was called with {} micro-batches accumulated; call Update first", what,
                    engine_->num_micro_batches()));
  }

  // An engine as the options say now, with these weights and this state.
  absl::Status Rebuild(std::vector<HostTensor> params, const EngineState& state) {
    MW_ASSIGN_OR_RETURN(engine_,
                        Engine::Create(session_.client, session_.cache.get(), model_.model.get(),
                                       std::move(params), config_.engine, &state));
    return absl::OkStatus();
  }

  absl::Status SetLoss(std::shared_ptr<const Loss> loss) {
    MW_RETURN_IF_ERROR(CheckBetweenSteps("SetLoss"));
    MW_RETURN_IF_ERROR(Record(/*wait=*/true));
    EngineOptions changed = config_.engine;
    changed.loss_fn = std::move(loss);
    MW_RETURN_IF_ERROR(changed.Validate());
    MW_ASSIGN_OR_RETURN(EngineState state, engine_->State());
    std::erase_if(state.tensors,
                  [](const auto& entry) { return entry.first.starts_with(kLossStatePrefix); });
    for (const LossStateSpec& spec : changed.StepLoss()->state()) {
      state.tensors[kLossStatePrefix + spec.name] = spec.initial;
    }
    MW_ASSIGN_OR_RETURN(std::vector<HostTensor> params, engine_->Params());
    config_.engine = std::move(changed);
    // The old one's weights go before the new one's come.
    MW_RETURN_IF_ERROR(engine_->Close());
    return Rebuild(std::move(params), state);
  }

  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) {
    MW_RETURN_IF_ERROR(CheckBetweenSteps("SetWeights"));
    MW_ASSIGN_OR_RETURN(std::vector<HostTensor> params,
                        StackHfTensors(engine_->params(), weights, config_.engine.weight_dtype));
    MW_RETURN_IF_ERROR(Record(/*wait=*/true));
    MW_ASSIGN_OR_RETURN(const EngineState state, engine_->State());
    return engine_->Restore(std::move(params), state);
  }

  absl::Status CheckOut(const char* what) const {
    if (!options_.out.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(fmt::format(
        "{} was called without a folder for checkpoints; give TrainerOptions::out", what));
  }

  absl::Status SaveCheckpoint(const std::map<std::string, std::string>& metadata, bool force) {
    MW_RETURN_IF_ERROR(CheckOut("SaveCheckpoint"));
    if (!config_.enable_checkpointing) return absl::OkStatus();
    const int64_t period = config_.checkpoint_period;
    if (!force && (period <= 0 || engine_->step() % period != 0)) return absl::OkStatus();
    CheckpointState state;
    MW_ASSIGN_OR_RETURN(state.engine, engine_->State());
    if (data_ != nullptr) {
      state.data_iterator = data_->state().ToJson().dump();
      if (state.engine.partial) state.update_data_iterator = update_position_.ToJson().dump();
    }
    state.seed = config_.data.seed;
    state.config = ConfigToYaml(config_);
    state.metadata = metadata;
    state.metadata["model"] = model_.origin;
    if (!base_fingerprint_.empty()) state.metadata[kBaseFingerprint] = base_fingerprint_;
    CheckpointOptions checkpoint_options;
    checkpoint_options.max_num_checkpoints_to_keep = config_.max_num_checkpoints_to_keep;
    return train::SaveCheckpoint(
               options_.out, std::move(state),
               [this](const std::string& dir) -> absl::Status {
                 const models::LoraOptions& lora = config_.engine.model.lora;
                 const std::vector<size_t> places = ExportedPlaces(engine_->params(), lora);
                 MW_ASSIGN_OR_RETURN(std::vector<HostTensor> params, engine_->Params(places));
                 ExportOptions export_options;
                 export_options.dtype = config_.engine.weight_dtype;
                 export_options.tokenizer_from = &model_;
                 return ExportTrained(dir, model_, lora, Pick(engine_->params(), places),
                                      std::move(params), export_options)
                     .status();
               },
               checkpoint_options)
        .status();
  }

  absl::StatusOr<std::map<std::string, std::string>> RestoreCheckpoint(
      std::optional<int64_t> step) {
    MW_RETURN_IF_ERROR(CheckOut("RestoreCheckpoint"));
    std::string dir;
    if (step) {
      dir = fmt::format("{}/checkpoints/{}", options_.out, *step);
    } else {
      MW_ASSIGN_OR_RETURN(const auto found, FindLatestCheckpoint(options_.out));
      if (!found) {
        return absl::NotFoundError(fmt::format("{} has no checkpoint to restore", options_.out));
      }
      dir = found->dir;
    }
    MW_ASSIGN_OR_RETURN(CheckpointState state, LoadCheckpoint(dir));
    MW_ASSIGN_OR_RETURN(const OpenedModel saved, OpenContinued(dir));
    MW_RETURN_IF_ERROR(CheckSameBase(saved, state.metadata, dir));
    MW_ASSIGN_OR_RETURN(std::vector<HostTensor> params,
                        LoadParams(saved, engine_->params(), config_.engine.weight_dtype));
    std::optional<data::DataIteratorState> position, update_position;
    if (data_ != nullptr && !state.data_iterator.empty()) {
      MW_ASSIGN_OR_RETURN(position, ParsePosition(state.data_iterator));
      update_position = position;
      if (!state.update_data_iterator.empty()) {
        MW_ASSIGN_OR_RETURN(update_position, ParsePosition(state.update_data_iterator));
      }
    }
    const data::DataIteratorState before =
        data_ != nullptr ? data_->state() : data::DataIteratorState{};
    if (position) MW_RETURN_IF_ERROR(data_->Restore(*position));
    if (const absl::Status status = engine_->Restore(std::move(params), state.engine);
        !status.ok()) {
      if (position) data_->Restore(before).IgnoreError();
      return status;
    }
    if (update_position) update_position_ = *update_position;
    // Of steps that may be made again.
    recorder_ = MetricsRecorder(options_.note);
    return std::move(state.metadata);
  }

  // The checkpoint's model: with adapters or whole, as this one is.
  absl::StatusOr<OpenedModel> OpenContinued(const std::string& dir) const {
    const bool adapter = io::FileExists(dir + "/" + kAdapterConfigFile);
    const bool wanted = config_.engine.model.lora.enabled();
    if (adapter != wanted) {
      return absl::FailedPreconditionError(
          fmt::format("the checkpoint {} is of {}, and this Trainer trains {}: create it {} the "
                      "lora settings",
                      dir, adapter ? "adapters" : "a whole model",
                      wanted ? "adapters" : "a whole model", adapter ? "with" : "without"));
    }
    MW_ASSIGN_OR_RETURN(OpenedModel saved, OpenModel(dir, adapter ? model_.base_name : ""));
    models::LoraOptions lora = config_.engine.model.lora;
    MW_RETURN_IF_ERROR(TakeAdapter(saved, &lora));
    return saved;
  }

  TrainerOptions options_;
  TrainConfig config_;
  OpenedModel model_;
  std::string base_fingerprint_;  // of a run that trains adapters
  std::string data_note_;         // what follows from the model for rows of data
  DeviceSession session_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<data::DataIterator> data_;
  data::DataIteratorState update_position_;  // where the update under way began
  MetricsRecorder recorder_;
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(TrainerOptions options) {
  auto impl = std::make_unique<Impl>();
  MW_RETURN_IF_ERROR(impl->Init(std::move(options)));
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

absl::Status Trainer::OpenData(const std::vector<std::string>& paths) {
  return impl_->OpenData(paths);
}
absl::StatusOr<data::Batch> Trainer::NextBatch() { return impl_->NextBatch(); }

absl::Status Trainer::Compile(const data::Batch& dummy) {
  MW_ASSIGN_OR_RETURN(const data::Batch input, impl_->Input(dummy));
  return impl_->engine_->Compile(input);
}

absl::Status Trainer::FwdBwd(const data::Batch& batch) {
  MW_ASSIGN_OR_RETURN(const data::Batch input, impl_->Input(batch));
  return impl_->engine_->FwdBwd(input);
}

absl::StatusOr<PreparedInput> Trainer::PrepareFwdBwdInput(const data::Batch& batch) const {
  MW_ASSIGN_OR_RETURN(const data::Batch input, impl_->Input(batch));
  return impl_->engine_->PrepareFwdBwdInput(input);
}

absl::Status Trainer::FwdBwd(PreparedInput& input) { return impl_->engine_->FwdBwd(input); }

absl::Status Trainer::FwdBwdBatched(std::span<const data::Batch> batches) {
  MW_ASSIGN_OR_RETURN(const std::vector<data::Batch> inputs, impl_->Inputs(batches));
  return impl_->engine_->FwdBwdBatched(inputs);
}

absl::Status Trainer::Update() {
  MW_RETURN_IF_ERROR(impl_->engine_->Update());
  return impl_->FinishUpdate();
}

absl::Status Trainer::TrainStep(const data::Batch& batch) {
  MW_ASSIGN_OR_RETURN(const data::Batch input, impl_->Input(batch));
  MW_RETURN_IF_ERROR(impl_->engine_->TrainStep(input));
  return impl_->FinishUpdate();
}

absl::StatusOr<EvalMetrics> Trainer::EvalStep(const data::Batch& batch) {
  MW_ASSIGN_OR_RETURN(const data::Batch input, impl_->Input(batch));
  return impl_->engine_->EvalStep(input);
}

absl::Status Trainer::SetLoss(std::shared_ptr<const Loss> loss) {
  return impl_->SetLoss(std::move(loss));
}
void Trainer::SetModelInput(std::function<absl::StatusOr<data::Batch>(data::Batch)> model_input) {
  impl_->options_.model_input = std::move(model_input);
}

absl::StatusOr<std::map<std::string, HostTensor>> Trainer::Weights() const {
  MW_ASSIGN_OR_RETURN(const std::vector<HostTensor> params, impl_->engine_->Params());
  return UnstackHfTensors(impl_->engine_->params(), params);
}
absl::Status Trainer::SetWeights(const std::map<std::string, HostTensor>& weights) {
  return impl_->SetWeights(weights);
}

absl::Status Trainer::SaveCheckpoint(const std::map<std::string, std::string>& metadata,
                                     bool force) {
  return impl_->SaveCheckpoint(metadata, force);
}
absl::StatusOr<std::map<std::string, std::string>> Trainer::RestoreCheckpoint(
    std::optional<int64_t> step) {
  return impl_->RestoreCheckpoint(step);
}

absl::StatusOr<std::optional<MetricRecord>> Trainer::Metrics() {
  MW_RETURN_IF_ERROR(impl_->Record(/*wait=*/false));
  const MetricRecord* const latest = impl_->recorder_.Latest();
  return latest == nullptr ? std::nullopt : std::optional<MetricRecord>(*latest);
}
absl::StatusOr<std::vector<MetricRecord>> Trainer::MetricsHistory(bool clear) {
  MW_RETURN_IF_ERROR(impl_->Record(/*wait=*/true));
  return impl_->recorder_.History(clear);
}

int64_t Trainer::step() const { return impl_->engine_->step(); }
int64_t Trainer::num_micro_batches() const { return impl_->engine_->num_micro_batches(); }
const models::ModelConfig& Trainer::model_config() const { return impl_->model_.config; }
bool Trainer::saves_checkpoints() const {
  return !impl_->options_.out.empty() && impl_->config_.enable_checkpointing;
}
Engine& Trainer::engine() { return *impl_->engine_; }

absl::Status Trainer::WaitForAll() { return impl_->engine_->WaitForAll(); }
absl::Status Trainer::Close() { return impl_->engine_->Close(); }

}  // namespace mw::train
