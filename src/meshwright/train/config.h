// TrainConfig: every setting of a run, and the one table that describes them.
#ifndef MESHWRIGHT_TRAIN_CONFIG_H_
#define MESHWRIGHT_TRAIN_CONFIG_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/data/data_iterator.h"
#include "meshwright/data/dataset.h"
#include "meshwright/train/engine_options.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/rl_options.h"

namespace mw::train {

// How samples are drawn.
struct GenerationConfig {
  int64_t max_new_tokens = 128;
  double temperature = 1.0;  // 0 = greedy
  int64_t top_k = 0;         // 0 = off
  double top_p = 1.0;        // 1 = off
  // Of the matrices that samples are generated with: float (the model's own) or int8.
  std::string sampling_weights = "float";

  // Errors: InvalidArgument naming the key, its value and what it may be.
  absl::Status Validate() const;
};

// A setting lives in the struct that uses it; what is only the run's own is here.
struct TrainConfig {
  int64_t steps = 100;
  int64_t gradient_accumulation_steps = 1;
  // engine.mesh follows from `mesh` and the devices; see MeshSettings::Resolve.
  EngineOptions engine;
  MeshSettings mesh;
  data::DataIteratorOptions data;
  bool skip_malformed = false;
  bool loss_on_prompt = false;
  std::string chat_template;  // see NamedChatTemplate; "" = the model's own
  GenerationConfig generation;
  PolicyOptions policy;

  bool enable_checkpointing = true;
  bool async_checkpointing = true;
  int64_t checkpoint_period = 1000;  // 0 = only at the end
  int64_t max_num_checkpoints_to_keep = 3;
  int64_t log_period = 1;
  int64_t eval_interval = -1;  // updates; at most 0 = only before and after the run
  bool tensorboard = true;

  // Keys that were set, to whatever value.
  std::set<std::string, std::less<>> given;

  TrainConfig();

  // Fills in what follows from other settings (the schedule's total_steps) and checks
  // all of them. Errors: InvalidArgument naming the key, its value and what it may be.
  absl::Status Finish();

  // Lowers the default max_target_length to the model's positions. One that was set stays,
  // for CheckTargetLength to refuse. Returns what it did in a sentence, "" when nothing.
  std::string AdaptTo(const models::ModelConfig& model);

  data::DatasetOptions dataset_options() const;

 private:
  // Those of adapters without adapters.
  absl::Status CheckLoraKeys() const;
  // What preference rows need.
  absl::Status FinishPreferences();
  // What samples need as rows.
  absl::Status FinishPolicy();
};

// The place of a setting.
using FieldRef = std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, DType*>;

struct ConfigField {
  const char* key;
  const char* doc;
  FieldRef (*at)(TrainConfig&);
};

// All keys, in the order in which they are printed.
const std::vector<ConfigField>& ConfigFields();

// The one of a key; null where there is none.
const ConfigField* FindConfigField(std::string_view key);

// The keys of PolicyOptions: those of the loop of grpo.
const std::vector<std::string_view>& PolicyKeys();

// Sets one key from text. `source` is where it was said: "command line", "FILE:LINE".
//
// Errors, beginning with `source`: NotFound for an unknown key with the nearest known
// one; Unimplemented for a key of a feature that this version does not have;
// InvalidArgument for a value of another type.
absl::Status SetConfigValue(TrainConfig& config, std::string_view key, std::string_view value,
                            const std::string& source);

// Applies a YAML map; nested maps are dotted keys (`loss: {z_loss: 1e-4}` is
// `loss.z_loss`). Errors: as SetConfigValue with `name`:LINE; InvalidArgument for text
// that is no YAML, for lists, and for a key given twice.
absl::Status ApplyConfigYaml(TrainConfig& config, std::string_view yaml, const std::string& name);

// Defaults, then the file (none when ""), then each "key=value" of `settings`: the last
// one wins. Finished.
absl::StatusOr<TrainConfig> LoadConfig(const std::string& file,
                                       const std::vector<std::string>& settings);

// The value of a field as text that SetConfigValue takes.
std::string ConfigValue(const TrainConfig& config, const ConfigField& field);

// All settings; ApplyConfigYaml of it gives the same config.
std::string ConfigToYaml(const TrainConfig& config);

// The reference page docs/config.md.
std::string ConfigMarkdown();

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_CONFIG_H_
