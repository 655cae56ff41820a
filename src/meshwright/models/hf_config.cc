#include "meshwright/models/hf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/models/registry.h"

namespace mw::models {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Bad(std::string_view key, const std::string& message) {
  return absl::InvalidArgumentError(fmt::format("config.json: {}: {}", key, message));
}

absl::Status Unsupported(std::string_view key, const Json& value, std::string_view use) {
  return absl::UnimplementedError(
      fmt::format("config.json: {} = {} is not supported; {}", key, value.dump(), use));
}

// Null counts as absent, as in transformers.
const Json* Find(const Json& object, std::string_view key) {
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

absl::StatusOr<int64_t> Int(const Json& object, std::string_view key,
                            std::optional<int64_t> fallback = std::nullopt) {
  const Json* value = Find(object, key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return Bad(key, "missing");
  }
  if (value->is_number_integer()) return value->get<int64_t>();
  if (value->is_number_float()) {
    const auto number = value->get<double>();
    if (number == static_cast<double>(static_cast<int32_t>(std::clamp(number, -1e9, 1e9)))) {
      return static_cast<int64_t>(number);
    }
  }
  return Bad(key, fmt::format("{} is not an integer", value->dump()));
}

absl::StatusOr<double> Number(const Json& object, std::string_view key,
                              std::optional<double> fallback = std::nullopt) {
  const Json* value = Find(object, key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return Bad(key, "missing");
  }
  if (!value->is_number()) return Bad(key, fmt::format("{} is not a number", value->dump()));
  return value->get<double>();
}

absl::StatusOr<bool> Bool(const Json& object, std::string_view key, bool fallback) {
  const Json* value = Find(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return Bad(key, fmt::format("{} is not a boolean", value->dump()));
  return value->get<bool>();
}

// One id, a list of ids or nothing.
absl::StatusOr<std::vector<int64_t>> TokenIds(const Json& object, std::string_view key) {
  std::vector<int64_t> ids;
  const Json* value = Find(object, key);
  if (value == nullptr) return ids;
  // Some published models say -1 or more than the vocabulary for none.
  const auto is_id = [](const Json& id) {
    return id.is_number_integer() && id >= -1 && id <= std::numeric_limits<int32_t>::max();
  };
  if (is_id(*value)) return std::vector<int64_t>{value->get<int64_t>()};
  if (value->is_array()) {
    for (const Json& id : *value) {
      if (!is_id(id)) return Bad(key, fmt::format("{} is no token id", id.dump()));
      ids.push_back(id.get<int64_t>());
    }
    return ids;
  }
  return Bad(key, fmt::format("{} is neither a token id nor a list of them", value->dump()));
}

absl::Status RefuseWhatIsNotSupported(const Json& json) {
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const Json* act = Find(json, key);
    if (act != nullptr && *act != "silu" && *act != "swish") {
      return Unsupported(key, *act, "use silu");
    }
  }
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
    MW_ASSIGN_OR_RETURN(const bool on, Bool(json, key, false));
    if (on) return Unsupported(key, json.at(key), "only false is");
  }
  // Qwen configs carry a window and a switch; without the switch a window is in use.
  if (const Json* window = Find(json, "sliding_window");
      window != nullptr && Find(json, "use_sliding_window") == nullptr) {
    return Unsupported("sliding_window", *window, "only full attention is");
  }
  if (const Json* types = Find(json, "layer_types"); types != nullptr) {
    for (const Json& type : *types) {
      if (type != "full_attention") {
        return Unsupported("layer_types", type, "only full_attention is");
      }
    }
  }
  if (const Json* quantization = Find(json, "quantization_config"); quantization != nullptr) {
    return Unsupported("quantization_config", *quantization, "use unquantized weights");
  }
  return absl::OkStatus();
}

// What transformers looks up in torch. The weights' own dtypes are those of their files.
absl::Status CheckDtype(const Json& json) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const Json* dtype = Find(json, key);
    if (dtype == nullptr || !dtype->is_string()) continue;
    std::string name = dtype->get<std::string>();
    if (name.starts_with("torch.")) name.erase(0, 6);
    static constexpr std::string_view kKnown[] = {"float32",  "float",   "float16", "half",
                                                  "bfloat16", "float64", "double",  "auto"};
    if (std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown) &&
        !name.starts_with("float8_")) {
      return Bad(key, fmt::format("{} is no dtype of weights; known: float32, float16, bfloat16",
                                  dtype->dump()));
    }
  }
  return absl::OkStatus();
}

// transformers goes by model_type, and other programs by architectures.
absl::Status CheckModelType(const Json& json, const Family& family) {
  const Json* type = Find(json, "model_type");
  if (type == nullptr || *type == family.name) return absl::OkStatus();
  return Bad("model_type", fmt::format("{} contradicts the architecture {}, whose model_type is {}",
                                       Excerpt(type->dump()), family.hf_architecture, family.name));
}

absl::StatusOr<nn::RopeConfig> ReadRope(const Json& json) {
  nn::RopeConfig rope;
  MW_ASSIGN_OR_RETURN(rope.theta, Number(json, "rope_theta", 10000.0));
  const char* key = Find(json, "rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* scaling = Find(json, key);
  const Json* partial = Find(json, "partial_rotary_factor");
  if (scaling != nullptr) {
    if (!scaling->is_object()) {
      return Bad(key, fmt::format("{} is not an object", scaling->dump()));
    }
    MW_ASSIGN_OR_RETURN(rope.theta, Number(*scaling, "rope_theta", rope.theta));
    if (partial == nullptr) partial = Find(*scaling, "partial_rotary_factor");
    const Json* type = Find(*scaling, "rope_type");
    if (type == nullptr) type = Find(*scaling, "type");
    if (type == nullptr && key == std::string_view("rope_scaling")) {
      return Bad(key, "has neither rope_type nor type");
    }
    if (type != nullptr) {
      const auto parsed =
          type->is_string() ? nn::ParseRopeType(type->get<std::string>()) : std::nullopt;
      if (!parsed) {
        return Unsupported(fmt::format("{}.rope_type", key), *type,
                           "known: default, linear, llama3");
      }
      rope.type = *parsed;
    }
    if (rope.type != nn::RopeType::kDefault) {
      MW_ASSIGN_OR_RETURN(rope.factor, Number(*scaling, "factor"));
    }
    if (rope.type == nn::RopeType::kLlama3) {
      MW_ASSIGN_OR_RETURN(rope.low_freq_factor, Number(*scaling, "low_freq_factor"));
      MW_ASSIGN_OR_RETURN(rope.high_freq_factor, Number(*scaling, "high_freq_factor"));
      MW_ASSIGN_OR_RETURN(rope.original_max_position,
                          Int(*scaling, "original_max_position_embeddings"));
    }
  }
  if (partial != nullptr && *partial != 1.0) {
    return Unsupported("partial_rotary_factor", *partial, "only 1 is");
  }
  return rope;
}

absl::StatusOr<const Family*> ReadFamily(const Json& json) {
  const Json* architectures = Find(json, "architectures");
  if (architectures == nullptr || !architectures->is_array() || architectures->size() != 1 ||
      !architectures->front().is_string()) {
    return Bad("architectures", "must be a list of one name");
  }
  return FindFamilyByHfArchitecture(architectures->front().get<std::string>());
}

// A rope that a Hugging Face config can express, of the same frequencies.
absl::StatusOr<nn::RopeConfig> ExpressibleRope(const ModelConfig& config) {
  if (config.rope.type != nn::RopeType::kFreqFactors) return config.rope;
  return absl::FailedPreconditionError(
      "config.json cannot express the rope frequency factors of this model: they are those of "
      "no known scaling; a .gguf file can");
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfigFromHfJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("config.json is not a JSON object");
  MW_ASSIGN_OR_RETURN(const Family* family, ReadFamily(json));
  MW_RETURN_IF_ERROR(CheckModelType(json, *family));
  MW_RETURN_IF_ERROR(CheckDtype(json));
  MW_RETURN_IF_ERROR(RefuseWhatIsNotSupported(json));

  ModelConfig config;
  config.family = family->name;
  config.qk_norm = family->qk_norm;
  MW_ASSIGN_OR_RETURN(config.vocab_size, Int(json, "vocab_size"));
  MW_ASSIGN_OR_RETURN(config.hidden_size, Int(json, "hidden_size"));
  MW_ASSIGN_OR_RETURN(config.mlp_size, Int(json, "intermediate_size"));
  MW_ASSIGN_OR_RETURN(config.num_layers, Int(json, "num_hidden_layers"));
  MW_ASSIGN_OR_RETURN(config.num_heads, Int(json, "num_attention_heads"));
  if (config.num_heads < 1) return Bad("num_attention_heads", "must be positive");
  const HfDefaults& defaults = family->hf_defaults;
  MW_ASSIGN_OR_RETURN(config.num_kv_heads,
                      Int(json, "num_key_value_heads",
                          defaults.num_kv_heads > 0 ? defaults.num_kv_heads : config.num_heads));
  MW_ASSIGN_OR_RETURN(
      config.head_dim,
      Int(json, "head_dim",
          defaults.head_dim > 0 ? defaults.head_dim : config.hidden_size / config.num_heads));
  MW_ASSIGN_OR_RETURN(config.rms_norm_eps, Number(json, "rms_norm_eps", 1e-6));
  MW_ASSIGN_OR_RETURN(config.tie_word_embeddings, Bool(json, "tie_word_embeddings", false));
  MW_ASSIGN_OR_RETURN(config.max_position, Int(json, "max_position_embeddings", 2048));
  MW_ASSIGN_OR_RETURN(config.initializer_range, Number(json, "initializer_range", 0.02));
  MW_ASSIGN_OR_RETURN(config.bos_token_ids, TokenIds(json, "bos_token_id"));
  MW_ASSIGN_OR_RETURN(config.eos_token_ids, TokenIds(json, "eos_token_id"));
  MW_ASSIGN_OR_RETURN(config.rope, ReadRope(json));
  MW_RETURN_IF_ERROR(config.Validate());
  return config;
}

absl::StatusOr<std::string> ModelConfigToHfJson(const ModelConfig& config, DType dtype) {
  MW_RETURN_IF_ERROR(config.Validate());
  MW_ASSIGN_OR_RETURN(const Family* family, FindFamily(config.family));
  MW_ASSIGN_OR_RETURN(const nn::RopeConfig rope, ExpressibleRope(config));
  const auto ids = [](const std::vector<int64_t>& list) -> Json {
    if (list.empty()) return nullptr;
    return list.size() == 1 ? Json(list[0]) : Json(list);
  };
  Json json;
  json["architectures"] = {family->hf_architecture};
  json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["bos_token_id"] = ids(config.bos_token_ids);
  json["eos_token_id"] = ids(config.eos_token_ids);
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["hidden_size"] = config.hidden_size;
  json["initializer_range"] = config.initializer_range;
  json["intermediate_size"] = config.mlp_size;
  json["max_position_embeddings"] = config.max_position;
  json["model_type"] = family->name;
  json["num_attention_heads"] = config.num_heads;
  json["num_hidden_layers"] = config.num_layers;
  json["num_key_value_heads"] = config.num_kv_heads;
  json["rms_norm_eps"] = config.rms_norm_eps;
  // The keys of transformers 4, which 5 still reads; the reverse does not hold.
  json["rope_scaling"] = nullptr;
  if (rope.type != nn::RopeType::kDefault) {
    Json scaling;
    scaling["rope_type"] = std::string(nn::RopeTypeName(rope.type));
    scaling["factor"] = rope.factor;
    if (rope.type == nn::RopeType::kLlama3) {
      scaling["low_freq_factor"] = rope.low_freq_factor;
      scaling["high_freq_factor"] = rope.high_freq_factor;
      scaling["original_max_position_embeddings"] = rope.original_max_position;
    }
    json["rope_scaling"] = scaling;
  }
  json["rope_theta"] = rope.theta;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["torch_dtype"] = dtype == DType::kF16    ? "float16"
                        : dtype == DType::kBF16 ? "bfloat16"
                                                : "float32";
  json["use_cache"] = true;
  json["vocab_size"] = config.vocab_size;
  return json.dump(2) + "\n";
}

}  // namespace mw::models
