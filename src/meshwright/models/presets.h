// Presets: the model configs of configs/models/, built into the program.
#ifndef MESHWRIGHT_MODELS_PRESETS_H_
#define MESHWRIGHT_MODELS_PRESETS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/models/model_config.h"

namespace mw::models {

// Names of the built-in presets, sorted.
std::vector<std::string> PresetNames();

// The preset `name`: that of DIR/NAME.yaml when `dir` is given and has it, else the
// built-in one.
//
// Errors: NotFound with the nearest name and the list; whatever ModelConfigFromYaml
// reports.
absl::StatusOr<ModelConfig> LoadPreset(std::string_view name, const std::string& dir = "");

// Reads a config written in ModelConfig's own field names; `source` is for messages.
//
// Errors: InvalidArgument for text that is no YAML map, an unknown key (with the
// nearest known one), a missing field, a value of the wrong type or out of range.
absl::StatusOr<ModelConfig> ModelConfigFromYaml(std::string_view text, const std::string& source);

// What the build generates from configs/models/*.yaml.
struct EmbeddedPreset {
  const char* name;
  const char* yaml;
};
std::span<const EmbeddedPreset> EmbeddedPresets();

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_PRESETS_H_
