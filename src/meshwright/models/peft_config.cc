#include "meshwright/models/peft_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"

namespace mw::models {
namespace {

using Json = nlohmann::ordered_json;

// Keys that say nothing about what an adapter computes, and those that are read below.
constexpr std::string_view kKnownKeys[] = {"auto_mapping",
                                           "base_model_name_or_path",
                                           "inference_mode",
                                           "init_lora_weights",
                                           "lora_alpha",
                                           "lora_dropout",
                                           "megatron_core",
                                           "peft_type",
                                           "peft_version",
                                           "qalora_group_size",
                                           "r",
                                           "revision",
                                           "runtime_config",
                                           "target_modules",
                                           "task_type",
                                           "use_rslora"};

absl::Status Bad(std::string_view key, const Json& value, std::string_view wanted) {
  return absl::InvalidArgumentError(
      fmt::format("adapter_config.json: {} is {}, not {}", key, Excerpt(value.dump()), wanted));
}

absl::Status Unsupported(std::string_view key, const Json& value, std::string_view use) {
  return absl::UnimplementedError(fmt::format("adapter_config.json: {} = {} is not supported; {}",
                                              key, Excerpt(value.dump()), use));
}

// What peft's defaults are made of.
bool IsNothing(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_object() || value.is_array()) && value.empty());
}

// Initializations after which the base model's weights are the published ones.
bool KeepsBase(const Json& init) {
  return init.is_null() || init.is_boolean() || init == "gaussian" || init == "orthogonal" ||
         init == "eva";
}

absl::StatusOr<std::string> ReadTargets(const Json& value) {
  if (value == "all-linear") return "all-linear";
  if (value.is_string()) {
    return Unsupported("target_modules", value,
                       "a list of names or \"all-linear\" is, a pattern is not");
  }
  const auto is_text = [](const Json& name) { return name.is_string(); };
  if (!value.is_array() || value.empty() || !std::ranges::all_of(value, is_text)) {
    return Bad("target_modules", value, "a list of module names");
  }
  LoraOptions lora;
  lora.target_modules = fmt::format("{}", fmt::join(value.get<std::vector<std::string>>(), ","));
  const absl::Status status = lora.Validate();
  if (!status.ok()) {
    return absl::Status(status.code(),
                        fmt::format("adapter_config.json: {}", std::string(status.message())));
  }
  // The order is not peft's own: it keeps a set.
  const std::vector<std::string> targets = lora.Targets();
  if (targets == LoraModules()) return "all-linear";
  return fmt::format("{}", fmt::join(targets, ","));
}

}  // namespace

absl::StatusOr<PeftConfig> PeftConfigFromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("adapter_config.json: the text is no JSON object");
  }
  const auto find = [&](const char* key) {
    const auto it = json.find(key);
    return it == json.end() ? Json() : *it;
  };
  if (const Json type = find("peft_type"); type != "LORA") {
    return Unsupported("peft_type", type, "\"LORA\" is");
  }
  if (const Json task = find("task_type"); !task.is_null() && task != "CAUSAL_LM") {
    return Unsupported("task_type", task, "\"CAUSAL_LM\" is");
  }
  if (const Json bias = find("bias"); !bias.is_null() && bias != "none") {
    return Unsupported("bias", bias, "\"none\" is: the models have no biases to train");
  }
  if (const Json init = find("init_lora_weights"); !KeepsBase(init)) {
    return Unsupported("init_lora_weights", init,
                       "it changes the weights of the base model: convert the adapter to plain "
                       "LoRA with peft (path_initial_model_for_weight_conversion)");
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "bias" || std::ranges::find(kKnownKeys, key) != std::end(kKnownKeys)) continue;
    if (!IsNothing(value)) return Unsupported(key, value, "only plain LoRA adapters are");
  }

  PeftConfig config;
  const Json r = find("r");
  if (!r.is_number_integer() || r.get<int64_t>() < 1) return Bad("r", r, "a positive integer");
  config.lora.rank = r.get<int64_t>();
  const Json alpha = find("lora_alpha");
  if (!alpha.is_number()) return Bad("lora_alpha", alpha, "a number");
  config.lora.alpha = alpha.get<double>();
  const Json rslora = find("use_rslora");
  if (!rslora.is_null() && !rslora.is_boolean()) return Bad("use_rslora", rslora, "true or false");
  config.lora.use_rslora = rslora.is_boolean() && rslora.get<bool>();
  const Json dropout = find("lora_dropout");
  if (!dropout.is_null() && !dropout.is_number()) return Bad("lora_dropout", dropout, "a number");
  config.dropout = dropout.is_number() ? dropout.get<double>() : 0;
  const Json base = find("base_model_name_or_path");
  if (!base.is_null() && !base.is_string()) return Bad("base_model_name_or_path", base, "a text");
  config.base = base.is_string() ? base.get<std::string>() : "";
  MW_ASSIGN_OR_RETURN(config.lora.target_modules, ReadTargets(find("target_modules")));
  if (const absl::Status status = config.lora.Validate(); !status.ok()) {
    return absl::Status(status.code(),
                        fmt::format("adapter_config.json: {}", std::string(status.message())));
  }
  return config;
}

std::string PeftConfigToJson(const PeftConfig& config) {
  Json json;
  json["base_model_name_or_path"] = config.base;
  json["bias"] = "none";
  json["fan_in_fan_out"] = false;
  json["inference_mode"] = true;
  json["init_lora_weights"] = true;
  // An integer where it is one: peft's own type.
  const auto whole = static_cast<int64_t>(std::clamp(config.lora.alpha, 0.0, 1e15));
  if (static_cast<double>(whole) == config.lora.alpha) {
    json["lora_alpha"] = whole;
  } else {
    json["lora_alpha"] = config.lora.alpha;
  }
  json["lora_dropout"] = config.dropout;
  json["modules_to_save"] = nullptr;
  json["peft_type"] = "LORA";
  json["r"] = config.lora.rank;
  json["target_modules"] = config.lora.Targets();
  json["task_type"] = "CAUSAL_LM";
  json["use_dora"] = false;
  json["use_rslora"] = config.lora.use_rslora;
  return json.dump(2) + "\n";
}

}  // namespace mw::models
