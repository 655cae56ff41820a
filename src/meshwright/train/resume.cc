#include "meshwright/train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "meshwright/base/check.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/step_params.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {
namespace {

// Those that Engine::Restore would find in the state's tensors.
constexpr const char* kStateKeys[] = {"scan_layers",
                                      "trainable_parameters",
                                      "opt_type",
                                      "sgd_momentum",
                                      "adafactor_min_dim_size_to_factor",
                                      "adafactor_momentum",
                                      "skip_step_on_spikes",
                                      "skip_step_interval"};
// Those that fix the rows and their order.
constexpr const char* kDataKeys[] = {"loss.name",      "shuffle",           "seed",
                                     "packing",        "max_target_length", "loss_on_prompt",
                                     "skip_malformed", "chat_template"};

// Those that decide what a micro-batch adds to its update, and how many there are, beside
// kDataKeys, which no continuation may change. `packing` is in both: grpo draws its prompts without
// it, so there it decides only how samples share rows, and may change between updates. What only
// the update itself reads may change, and so may the mesh and whatever changes no more than the
// order of sums.
constexpr const char* kUpdateKeys[] = {"trainable_parameters",
                                       "batch_size",
                                       "gradient_accumulation_steps",
                                       "pad_first",
                                       "packing",
                                       "loss.name",
                                       "loss.z_loss",
                                       "loss.label_smoothing",
                                       "loss.dpo_loss",
                                       "loss.dpo_beta",
                                       "loss.dpo_label_smoothing",
                                       "loss.dpo_reference_free",
                                       "loss.distill_kl",
                                       "loss.distill_top_k",
                                       "loss.distill_alpha",
                                       "loss.distill_temperature",
                                       "loss.algorithm",
                                       "loss.clip_low",
                                       "loss.clip_high",
                                       "loss.dual_clip",
                                       "loss.kl_coef",
                                       "loss.kl_estimator",
                                       "loss.kl_in",
                                       "loss.aggregation",
                                       "loss.norm_length",
                                       "loss.importance",
                                       "loss.importance_cap",
                                       "loss.temperature",
                                       "loss.log_ratio_bound",
                                       "dtype",
                                       "weight_dtype",
                                       "matmul_precision"};

const ConfigField& Field(std::string_view key) {
  const ConfigField* const field = FindConfigField(key);
  MW_CHECK_MSG(field != nullptr, "a key that is no setting");
  return *field;
}

// The settings that the run was saved with; nullopt when another version wrote them.
std::optional<TrainConfig> SavedConfig(const CheckpointState& saved) {
  TrainConfig config;
  if (saved.config.empty() || !ApplyConfigYaml(config, saved.config, "config.yaml").ok() ||
      !config.Finish().ok()) {
    return std::nullopt;
  }
  return config;
}

std::string Shown(const std::string& value) { return value.empty() ? "\"\"" : value; }

struct Difference {
  std::vector<std::string> asked;  // "opt_type=sgd"
  std::vector<std::string> saved;
};

// Gives `config` each of `keys` whose saved value is another, where `matters`.
template <typename Matters>
Difference Differences(TrainConfig config, const TrainConfig& saved,
                       std::span<const char* const> keys, const Matters& matters) {
  Difference difference;
  for (const char* const key : keys) {
    const ConfigField& field = Field(key);
    const std::string asked_value = ConfigValue(config, field);
    const std::string saved_value = ConfigValue(saved, field);
    if (asked_value == saved_value) continue;
    TrainConfig changed = config;
    MW_CHECK(SetConfigValue(changed, key, saved_value, "saved settings").ok());
    if (!matters(config, changed)) continue;
    config = std::move(changed);
    difference.asked.push_back(fmt::format("{}={}", key, Shown(asked_value)));
    difference.saved.push_back(fmt::format("{}={}", key, Shown(saved_value)));
  }
  return difference;
}

bool SameState(const std::vector<StateSpec>& a, const std::vector<StateSpec>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].type != b[i].type) return false;
  }
  return true;
}

// What must agree for the optimizer state of one to fit the other.
absl::Status CheckSameModel(const models::ModelConfig& asked, const models::ModelConfig& saved,
                            const std::string& checkpoint) {
  if (asked.family == saved.family && asked.vocab_size == saved.vocab_size &&
      asked.hidden_size == saved.hidden_size && asked.num_layers == saved.num_layers &&
      asked.num_heads == saved.num_heads && asked.num_kv_heads == saved.num_kv_heads &&
      asked.mlp_size == saved.mlp_size && asked.tie_word_embeddings == saved.tie_word_embeddings) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(fmt::format(
      "--model is {} with {} parameters, but the checkpoint {} is {} with {}: resume with the "
      "model that the run began with",
      asked.family, asked.NumParameters(), checkpoint, saved.family, saved.NumParameters()));
}

// The weights come from the checkpoint, so another seed would do nothing.
absl::Status CheckSameSeed(const OpenedModel& asked, const std::string& saved_origin,
                           const std::string& out) {
  if (asked.kind != OpenedModel::Kind::kRandom || !saved_origin.starts_with("random:")) {
    return absl::OkStatus();
  }
  const absl::StatusOr<OpenedModel> saved = OpenModel(saved_origin);
  const auto preset = [](const std::string& origin) {
    return origin.substr(0, origin.find(':', origin.find(':') + 1));
  };
  if (!saved.ok() ||
      (saved->random_seed == asked.random_seed && preset(saved_origin) == preset(asked.origin))) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      fmt::format("--model is {}, but the run in {} began with {}: resume with that, or give "
                  "another folder",
                  asked.origin, out, saved_origin));
}

// `config` with the adapter of the run, if it has one.
absl::StatusOr<TrainConfig> WithAdapter(const SavedRun& saved, TrainConfig config,
                                        const std::string& out) {
  if (config.engine.model.lora.enabled() && !saved.model.adapter) {
    return absl::FailedPreconditionError(fmt::format(
        "the run in {} trains the whole model and not adapters: resume without lora.rank={}, or "
        "begin another run from its weights with --model {}",
        out, config.engine.model.lora.rank, saved.model.path));
  }
  MW_RETURN_IF_ERROR(TakeAdapter(saved.model, &config.engine.model.lora));
  return config;
}

absl::Status CheckSameState(const SavedRun& saved, const std::optional<TrainConfig>& saved_config,
                            const TrainConfig& config, const std::string& out) {
  // The engine then tells of the tensor that does not fit.
  if (!saved_config) return absl::OkStatus();
  MW_RETURN_IF_ERROR(StepParams::Create(*saved.model.model, config.engine).status());
  const auto state = [&](const TrainConfig& c) -> std::vector<StateSpec> {
    const auto params = StepParams::Create(*saved.model.model, c.engine);
    if (!params.ok()) return {};  // patterns of names that another scan_layers does not have
    return UpdateState(params->Trained(), c.engine);
  };
  const Difference difference = Differences(
      config, *saved_config, kStateKeys,
      [&](const TrainConfig& a, const TrainConfig& b) { return !SameState(state(a), state(b)); });
  if (difference.asked.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "the run in {} has {}, whose optimizer state does not fit {}: resume with {}, or begin "
      "another run from its weights with --model {}",
      out, fmt::join(difference.saved, " "), fmt::join(difference.asked, " "),
      fmt::join(difference.saved, " "),
      saved.model.adapter ? saved.model.adapter->path : saved.model.path));
}

// Gradients of one update that were computed in different ways are no gradient of anything.
absl::Status CheckSameUpdate(const SavedRun& saved, const std::optional<TrainConfig>& saved_config,
                             const TrainConfig& config, const std::string& out) {
  if (!saved.state.engine.partial || !saved_config) return absl::OkStatus();
  const Difference difference =
      Differences(config, *saved_config, kUpdateKeys,
                  [](const TrainConfig&, const TrainConfig&) { return true; });
  if (difference.asked.empty()) return absl::OkStatus();
  const int64_t begun = saved.state.engine.partial->num_micro_batches;
  return absl::FailedPreconditionError(fmt::format(
      "the run in {} has accumulated {} micro-batch{} of an update with {}, to which those with {} "
      "do not add: resume with {}, or give --restart-update with --resume to begin that update "
      "again",
      out, begun, begun == 1 ? "" : "es", fmt::join(difference.saved, " "),
      fmt::join(difference.asked, " "), fmt::join(difference.saved, " ")));
}

// Settings that a resumed run may change are told: those that were not repeated are the
// defaults again.
void NoteChangedSettings(const std::optional<TrainConfig>& saved_config, const TrainConfig& config,
                         const std::function<void(std::string_view)>& note) {
  if (!saved_config) return;
  std::vector<std::string> changed;
  for (const ConfigField& field : ConfigFields()) {
    const std::string now = ConfigValue(config, field);
    const std::string before = ConfigValue(*saved_config, field);
    if (now == before) continue;
    changed.push_back(fmt::format("{}={} (was {})", field.key, Shown(now), Shown(before)));
  }
  if (changed.empty()) return;
  note(fmt::format("settings that differ from the run's so far: {}", fmt::join(changed, ", ")));
}

// `damage` with what can be continued instead of the last of `found`.
absl::Status OfferOlder(const absl::Status& damage, const std::vector<FoundCheckpoint>& found) {
  std::vector<std::string> broken = {found.back().dir};
  for (size_t i = found.size() - 1; i-- > 0;) {
    if (LoadCheckpoint(found[i].dir).ok()) {
      return absl::Status(
          damage.code(),
          fmt::format("{}; checkpoint {} of the run is whole: remove {} to resume from it",
                      std::string(damage.message()), found[i].step, fmt::join(broken, " and ")));
    }
    broken.push_back(found[i].dir);
  }
  return absl::Status(damage.code(),
                      fmt::format("{}; the run has no older checkpoint that is whole",
                                  std::string(damage.message())));
}

// `passed_over`: what ListCheckpoints notes.
absl::Status NoCheckpoint(const std::string& out, const std::vector<std::string>& passed_over) {
  return absl::FailedPreconditionError(fmt::format(
      "{} has no checkpoint to resume{}{}: leave out --resume to start a run in an empty folder",
      out, passed_over.empty() ? "" : "; ", fmt::join(passed_over, "; ")));
}

}  // namespace

absl::StatusOr<SavedRun> OpenSavedRun(const std::string& out, const OpenedModel& asked,
                                      const TrainConfig& asked_config, PartialUpdate partial,
                                      const std::function<void(std::string_view)>& note) {
  std::vector<std::string> notes;
  MW_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found, ListCheckpoints(out, &notes));
  if (found.empty()) return NoCheckpoint(out, notes);
  for (const std::string& sentence : notes) note(sentence);
  SavedRun saved;
  const std::string& newest = found.back().dir;
  absl::StatusOr<CheckpointState> state = LoadCheckpoint(newest, partial);
  if (absl::IsDataLoss(state.status())) {
    if (!LoadCheckpoint(newest, PartialUpdate::kDrop).ok()) {
      return OfferOlder(state.status(), found);
    }
    return absl::DataLossError(fmt::format(
        "{}; it holds only what the update under way had accumulated, and the rest of {} is whole: "
        "give --restart-update with --resume to begin that update again",
        std::string(state.status().message()), newest));
  }
  if (!state.ok()) return state.status();
  saved.state = *std::move(state);
  if (partial == PartialUpdate::kDrop) {
    note(saved.state.update_data_iterator.empty()
             ? fmt::format("no update was under way in {}: there is none to begin again", newest)
             : fmt::format("the update that was under way in {} begins again", newest));
  }
  const bool adapter = io::FileExists(newest + "/" + kAdapterConfigFile);
  MW_ASSIGN_OR_RETURN(saved.model, OpenModel(newest, adapter ? asked.base_name : ""));
  MW_RETURN_IF_ERROR(CheckSameModel(asked.config, saved.model.config, newest));
  MW_RETURN_IF_ERROR(CheckSameBase(saved.model, saved.state.metadata, out));
  MW_ASSIGN_OR_RETURN(const TrainConfig config, WithAdapter(saved, asked_config, out));
  const auto origin = saved.state.metadata.find("model");
  if (origin != saved.state.metadata.end()) {
    MW_RETURN_IF_ERROR(CheckSameSeed(asked, origin->second, out));
  }
  const std::optional<TrainConfig> saved_config = SavedConfig(saved.state);
  MW_RETURN_IF_ERROR(CheckSameState(saved, saved_config, config, out));
  MW_RETURN_IF_ERROR(CheckSameUpdate(saved, saved_config, config, out));
  NoteChangedSettings(saved_config, config, note);
  return saved;
}

absl::StatusOr<OpenedModel> OpenModelOfRun(const std::string& out) {
  std::vector<std::string> notes;
  MW_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found, ListCheckpoints(out, &notes));
  if (found.empty()) return NoCheckpoint(out, notes);
  // Nothing but the name is taken from it, so a damaged one is told of by OpenSavedRun; but where
  // the name is of no use, the damage is why.
  const auto unless_damaged = [&](absl::Status status) {
    const absl::Status loaded = LoadCheckpoint(found.back().dir).status();
    return absl::IsDataLoss(loaded) ? OfferOlder(loaded, found) : status;
  };
  const std::map<std::string, std::string> saved = SavedMetadata(found.back().dir);
  const auto metadata = [&](const char* key) -> std::string {
    const auto value = saved.find(key);
    return value != saved.end() ? value->second : "";
  };
  const std::string name = metadata("model");
  if (name.empty()) {
    return unless_damaged(absl::FailedPreconditionError(
        fmt::format("{} does not say which model the run began with: give --model", out)));
  }
  absl::StatusOr<OpenedModel> opened = OpenModel(name, metadata(kBaseOfModel));
  if (absl::IsNotFound(opened.status())) {
    // Of an adapter that is there, the base model is what is not.
    return unless_damaged(absl::FailedPreconditionError(
        io::IsDirectory(name)
            ? fmt::format("the run in {} began with the model {}, and {} with --model", out,
                          Excerpt(name), std::string(opened.status().message()))
            : fmt::format("the run in {} began with the model {}, which is not there: give --model",
                          out, Excerpt(name))));
  }
  return opened;
}

absl::StatusOr<data::DataIteratorState> ParsePosition(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return absl::DataLossError("the checkpoint has no position in the data");
  }
  return data::DataIteratorState::FromJson(json);
}

absl::Status ExplainOtherData(const absl::Status& status, const CheckpointState& saved,
                              const TrainConfig& config) {
  if (!absl::IsFailedPrecondition(status)) return status;
  const std::optional<TrainConfig> saved_config = SavedConfig(saved);
  if (!saved_config) return status;
  const Difference difference =
      Differences(config, *saved_config, kDataKeys, [](const TrainConfig& a, const TrainConfig& b) {
        const auto of_pairs = [](const TrainConfig& c) { return c.engine.loss.name == "dpo"; };
        // The other losses take the same rows.
        if (a.engine.loss.name != b.engine.loss.name) return of_pairs(a) != of_pairs(b);
        return a.data.seed == b.data.seed || a.data.shuffle;
      });
  if (difference.asked.empty()) {
    return absl::FailedPreconditionError(
        "--data holds other rows than the run was trained on: resume with the same files, or give "
        "another folder");
  }
  return absl::FailedPreconditionError(
      fmt::format("the run has {}, not {}: resume with {}, or give another folder",
                  fmt::join(difference.saved, " "), fmt::join(difference.asked, " "),
                  fmt::join(difference.saved, " ")));
}

}  // namespace mw::train
