#include "meshwright/models/gguf_config.h"

#include <fmt/format.h>

#include <cmath>

#include "meshwright/base/status_macros.h"
#include "meshwright/models/registry.h"

namespace mw::models {
namespace {

absl::StatusOr<int64_t> NeedInt(const GgufLookup& file, const std::string& key) {
  if (const auto value = file.integer(key)) return *value;
  return absl::InvalidArgumentError(fmt::format("GGUF: the integer {} is missing", key));
}

// The parameters of a scaling that GGUF files state as factors only.
constexpr const char* kRopeType = "meshwright.rope.type";
constexpr const char* kRopeFactor = "meshwright.rope.factor";
constexpr const char* kRopeLow = "meshwright.rope.low_freq_factor";
constexpr const char* kRopeHigh = "meshwright.rope.high_freq_factor";
constexpr const char* kRopeOriginal = "meshwright.rope.original_max_position";

// The shortest decimal that rounds to the float32 that a file holds: what was meant.
double Decimal(double stored) { return std::stod(fmt::format("{}", static_cast<float>(stored))); }

// Llama 3's scaling of `factor`.
nn::RopeConfig Llama3Rope(double theta, double factor) {
  nn::RopeConfig rope;
  rope.theta = theta;
  rope.type = nn::RopeType::kLlama3;
  rope.factor = factor;
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  rope.original_max_position = 8192;
  return rope;
}

// The scaling of our own keys; nullopt where the file lacks one of them.
std::optional<nn::RopeConfig> StatedRope(const GgufLookup& file, double theta) {
  const auto factor = file.number(kRopeFactor), low = file.number(kRopeLow),
             high = file.number(kRopeHigh);
  const auto original = file.integer(kRopeOriginal);
  if (file.string(kRopeType) != nn::RopeTypeName(nn::RopeType::kLlama3) || !factor || !low ||
      !high || !original) {
    return std::nullopt;
  }
  nn::RopeConfig rope = Llama3Rope(theta, *factor);
  rope.low_freq_factor = *low;
  rope.high_freq_factor = *high;
  rope.original_max_position = *original;
  return rope;
}

bool GivesFactors(const nn::RopeConfig& rope, int64_t head_dim, const std::vector<float>& factors) {
  if (!rope.Validate(head_dim).ok()) return false;
  const std::vector<float> expected = nn::RopeFreqFactors(rope, head_dim);
  bool same = expected.size() == factors.size();
  for (size_t i = 0; same && i < factors.size(); ++i) {
    same = std::abs(expected[i] - factors[i]) <= 1e-4f * expected[i];
  }
  return same;
}

// The rope type that gives the file's factors, so that exports can name it.
nn::RopeConfig RecognizeFactors(const GgufLookup& file, double theta, int64_t head_dim) {
  std::vector<nn::RopeConfig> candidates;
  if (const auto stated = StatedRope(file, theta)) candidates.push_back(*stated);
  for (const double factor : {8.0, 32.0}) candidates.push_back(Llama3Rope(theta, factor));
  for (const nn::RopeConfig& rope : candidates) {
    if (GivesFactors(rope, head_dim, file.rope_freq_factors)) return rope;
  }
  nn::RopeConfig rope;
  rope.theta = theta;
  rope.type = nn::RopeType::kFreqFactors;
  rope.freq_factors = file.rope_freq_factors;
  return rope;
}

absl::StatusOr<nn::RopeConfig> ReadRope(const GgufLookup& file, const std::string& prefix,
                                        int64_t head_dim) {
  nn::RopeConfig rope;
  rope.theta = Decimal(file.number(prefix + "rope.freq_base").value_or(10000.0));
  const std::string type = file.string(prefix + "rope.scaling.type").value_or("none");
  if (type == "linear") {
    rope.type = nn::RopeType::kLinear;
    rope.factor = Decimal(file.number(prefix + "rope.scaling.factor").value_or(0.0));
  } else if (type != "none") {
    return absl::UnimplementedError(fmt::format(
        "GGUF: {}rope.scaling.type = {} is not supported; known: none, linear", prefix, type));
  }
  if (!file.rope_freq_factors.empty()) {
    if (rope.type != nn::RopeType::kDefault) {
      return absl::UnimplementedError(
          fmt::format("GGUF: rope_freqs.weight together with {}rope.scaling.type = {} is not "
                      "supported",
                      prefix, type));
    }
    return RecognizeFactors(file, rope.theta, head_dim);
  }
  if (const auto stated = file.string(kRopeType)) {
    return absl::InvalidArgumentError(
        fmt::format("GGUF: {} is {}, but the tensor rope_freqs.weight with its factors is missing",
                    kRopeType, *stated));
  }
  return rope;
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfigFromGguf(const GgufLookup& file) {
  const auto architecture = file.string("general.architecture");
  if (!architecture) {
    return absl::InvalidArgumentError("GGUF: the string general.architecture is missing");
  }
  MW_ASSIGN_OR_RETURN(const Family* family, FindFamilyByGgufArchitecture(*architecture));
  const std::string prefix = *architecture + ".";

  ModelConfig config;
  config.family = family->name;
  config.qk_norm = family->qk_norm;
  MW_ASSIGN_OR_RETURN(config.num_layers, NeedInt(file, prefix + "block_count"));
  MW_ASSIGN_OR_RETURN(config.hidden_size, NeedInt(file, prefix + "embedding_length"));
  MW_ASSIGN_OR_RETURN(config.mlp_size, NeedInt(file, prefix + "feed_forward_length"));
  MW_ASSIGN_OR_RETURN(config.num_heads, NeedInt(file, prefix + "attention.head_count"));
  if (config.num_heads < 1) {
    return absl::InvalidArgumentError(fmt::format(
        "GGUF: {}attention.head_count is {}; it must be positive", prefix, config.num_heads));
  }
  config.num_kv_heads = file.integer(prefix + "attention.head_count_kv").value_or(config.num_heads);
  config.head_dim =
      file.integer(prefix + "attention.key_length").value_or(config.hidden_size / config.num_heads);
  const int64_t value_length =
      file.integer(prefix + "attention.value_length").value_or(config.head_dim);
  const int64_t rotated = file.integer(prefix + "rope.dimension_count").value_or(config.head_dim);
  if (value_length != config.head_dim || rotated != config.head_dim) {
    return absl::UnimplementedError(
        fmt::format("GGUF: heads of {} with values of {} of which {} are rotated are not "
                    "supported; all three must be equal",
                    config.head_dim, value_length, rotated));
  }
  const std::string eps = prefix + "attention.layer_norm_rms_epsilon";
  const auto rms_norm_eps = file.number(eps);
  if (!rms_norm_eps) {
    return absl::InvalidArgumentError(fmt::format("GGUF: the number {} is missing", eps));
  }
  config.rms_norm_eps = Decimal(*rms_norm_eps);
  config.max_position = file.integer(prefix + "context_length").value_or(2048);
  const auto vocab = file.array_size("tokenizer.ggml.tokens");
  config.vocab_size = vocab ? *vocab : file.integer(prefix + "vocab_size").value_or(0);
  config.tie_word_embeddings = !file.has_tensor("output.weight");
  if (const auto id = file.integer("tokenizer.ggml.bos_token_id")) config.bos_token_ids = {*id};
  if (const auto id = file.integer("tokenizer.ggml.eos_token_id")) config.eos_token_ids = {*id};
  MW_ASSIGN_OR_RETURN(config.rope, ReadRope(file, prefix, config.head_dim));
  MW_RETURN_IF_ERROR(config.Validate());
  return config;
}

absl::StatusOr<std::vector<GgufEntry>> ModelConfigToGguf(const ModelConfig& config) {
  MW_RETURN_IF_ERROR(config.Validate());
  MW_ASSIGN_OR_RETURN(const Family* family, FindFamily(config.family));
  const std::string prefix = family->gguf_architecture + ".";
  const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
  std::vector<GgufEntry> entries = {
      {"general.architecture", family->gguf_architecture},
      {prefix + "block_count", u32(config.num_layers)},
      {prefix + "context_length", u32(config.max_position)},
      {prefix + "embedding_length", u32(config.hidden_size)},
      {prefix + "feed_forward_length", u32(config.mlp_size)},
      {prefix + "attention.head_count", u32(config.num_heads)},
      {prefix + "attention.head_count_kv", u32(config.num_kv_heads)},
      {prefix + "rope.freq_base", static_cast<float>(config.rope.theta)},
      {prefix + "attention.layer_norm_rms_epsilon", static_cast<float>(config.rms_norm_eps)},
      {prefix + "attention.key_length", u32(config.head_dim)},
      {prefix + "attention.value_length", u32(config.head_dim)},
      {prefix + "vocab_size", u32(config.vocab_size)},
      {prefix + "rope.dimension_count", u32(config.head_dim)},
  };
  if (config.rope.type == nn::RopeType::kLinear) {
    entries.emplace_back(prefix + "rope.scaling.type", "linear");
    entries.emplace_back(prefix + "rope.scaling.factor", static_cast<float>(config.rope.factor));
  }
  if (config.rope.type == nn::RopeType::kLlama3) {
    entries.emplace_back(kRopeType, std::string(nn::RopeTypeName(config.rope.type)));
    entries.emplace_back(kRopeFactor, config.rope.factor);
    entries.emplace_back(kRopeLow, config.rope.low_freq_factor);
    entries.emplace_back(kRopeHigh, config.rope.high_freq_factor);
    entries.emplace_back(kRopeOriginal, u32(config.rope.original_max_position));
  }
  return entries;
}

}  // namespace mw::models
