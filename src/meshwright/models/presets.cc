#include "meshwright/models/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/models/registry.h"

namespace mw::models {
namespace {

// Sets one field from its YAML value; yaml-cpp throws when the type does not fit.
using Setter = std::function<void(const YAML::Node&)>;

template <typename T>
Setter Into(T& field) {
  return [&field](const YAML::Node& node) { field = node.as<T>(); };
}

Setter IntoIds(std::vector<int64_t>& field) {
  return [&field](const YAML::Node& node) {
    field = node.IsSequence() ? node.as<std::vector<int64_t>>()
                              : std::vector<int64_t>{node.as<int64_t>()};
  };
}

absl::Status ReadMap(const YAML::Node& map, const std::map<std::string, Setter>& setters,
                     const std::string& source) {
  if (!map.IsMap()) return absl::InvalidArgumentError(fmt::format("{} is not a map", source));
  std::vector<std::string> known;
  for (const auto& [key, setter] : setters) known.push_back(key);
  for (const auto& item : map) {
    const auto key = item.first.as<std::string>();
    const auto it = setters.find(key);
    if (it == setters.end()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: unknown key \"{}\"{}", source, Excerpt(key), NearestNote(key, known)));
    }
    try {
      it->second(item.second);
    } catch (const YAML::Exception&) {
      return absl::InvalidArgumentError(fmt::format("{}: {} has a value of the wrong type: {}",
                                                    source, key, YAML::Dump(item.second)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfigFromYaml(std::string_view text, const std::string& source) {
  ModelConfig config;
  std::string rope_type = "default";
  YAML::Node rope_node;
  const std::map<std::string, Setter> setters = {
      {"family", Into(config.family)},
      {"vocab_size", Into(config.vocab_size)},
      {"hidden_size", Into(config.hidden_size)},
      {"num_layers", Into(config.num_layers)},
      {"num_heads", Into(config.num_heads)},
      {"num_kv_heads", Into(config.num_kv_heads)},
      {"head_dim", Into(config.head_dim)},
      {"mlp_size", Into(config.mlp_size)},
      {"rms_norm_eps", Into(config.rms_norm_eps)},
      {"tie_word_embeddings", Into(config.tie_word_embeddings)},
      {"max_position", Into(config.max_position)},
      {"initializer_range", Into(config.initializer_range)},
      {"bos_token_ids", IntoIds(config.bos_token_ids)},
      {"eos_token_ids", IntoIds(config.eos_token_ids)},
      {"rope", [&rope_node](const YAML::Node& node) { rope_node = node; }},
  };
  const std::map<std::string, Setter> rope_setters = {
      {"theta", Into(config.rope.theta)},
      {"type", Into(rope_type)},
      {"factor", Into(config.rope.factor)},
      {"low_freq_factor", Into(config.rope.low_freq_factor)},
      {"high_freq_factor", Into(config.rope.high_freq_factor)},
      {"original_max_position", Into(config.rope.original_max_position)},
  };
  YAML::Node root;
  try {
    root = YAML::Load(std::string(text));
    MW_RETURN_IF_ERROR(ReadMap(root, setters, source));
    if (rope_node.IsDefined() && !rope_node.IsNull()) {
      MW_RETURN_IF_ERROR(ReadMap(rope_node, rope_setters, source + ": rope"));
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        fmt::format("{}:{}: not valid YAML: {}", source, error.mark.line + 1, error.msg));
  }
  const auto type = nn::ParseRopeType(rope_type);
  if (!type) {
    return absl::InvalidArgumentError(
        fmt::format("{}: rope type \"{}\" is unknown; use default, linear or llama3", source,
                    Excerpt(rope_type)));
  }
  config.rope.type = *type;
  const auto family = FindFamily(config.family);
  absl::Status status = family.status();
  if (status.ok()) {
    config.qk_norm = (*family)->qk_norm;
    status = config.Validate();
  }
  if (!status.ok()) {
    return absl::Status(status.code(),
                        fmt::format("{}: {}", source, std::string(status.message())));
  }
  return config;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const EmbeddedPreset& preset : EmbeddedPresets()) names.emplace_back(preset.name);
  std::ranges::sort(names);
  return names;
}

absl::StatusOr<ModelConfig> LoadPreset(std::string_view name, const std::string& dir) {
  const bool plain = !name.empty() && name.find('/') == std::string_view::npos;
  if (!dir.empty() && plain) {
    const std::string path = fmt::format("{}/{}.yaml", dir, name);
    if (std::ifstream file(path); file.is_open()) {
      std::stringstream text;
      text << file.rdbuf();
      return ModelConfigFromYaml(text.str(), path);
    }
  }
  for (const EmbeddedPreset& preset : EmbeddedPresets()) {
    if (preset.name == name) {
      return ModelConfigFromYaml(preset.yaml, fmt::format("preset {}", name));
    }
  }
  const std::vector<std::string> known = PresetNames();
  return absl::NotFoundError(fmt::format("no model preset \"{}\"{}; there are {}", Excerpt(name),
                                         NearestNote(name, known), fmt::join(known, ", ")));
}

}  // namespace mw::models
