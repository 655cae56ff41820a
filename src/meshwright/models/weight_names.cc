#include "meshwright/models/weight_names.h"

#include <charconv>

namespace mw::models {
namespace {

// The text that stands for "{}" when `name` fits `pattern`; "" for a pattern
// without one.
std::optional<std::string_view> Match(std::string_view pattern, std::string_view name) {
  const size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos) {
    return pattern == name ? std::optional<std::string_view>("") : std::nullopt;
  }
  const std::string_view prefix = pattern.substr(0, hole);
  const std::string_view suffix = pattern.substr(hole + 2);
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) ||
      !name.ends_with(suffix)) {
    return std::nullopt;
  }
  return name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
}

// Whether `text` is a layer's number as files write it: no sign, no leading zero.
bool IsLayer(std::string_view text, int64_t num_layers) {
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  return error == std::errc() && end == text.data() + text.size() && layer >= 0 &&
         layer < num_layers && std::to_string(layer) == text;
}

std::optional<MappedWeight> Map(const Family& family, const ModelConfig& config,
                                std::string_view name, std::string WeightName::*from,
                                std::string WeightName::*to) {
  for (const WeightName& weight : family.weights) {
    const auto layer = Match(weight.*from, name);
    if (!layer) continue;
    MappedWeight mapped;
    mapped.name = weight.*to;
    if (const size_t hole = mapped.name.find("{}"); hole != std::string::npos) {
      if (!IsLayer(*layer, config.num_layers)) return std::nullopt;
      mapped.name.replace(hole, 2, *layer);
    }
    if (weight.gguf_rows == WeightName::Rows::kQuery) mapped.permuted_heads = config.num_heads;
    if (weight.gguf_rows == WeightName::Rows::kKey) mapped.permuted_heads = config.num_kv_heads;
    return mapped;
  }
  return std::nullopt;
}

}  // namespace

std::optional<MappedWeight> GgufToHf(const Family& family, const ModelConfig& config,
                                     std::string_view gguf_name) {
  return Map(family, config, gguf_name, &WeightName::gguf, &WeightName::hf);
}

std::optional<MappedWeight> HfToGguf(const Family& family, const ModelConfig& config,
                                     std::string_view hf_name) {
  return Map(family, config, hf_name, &WeightName::hf, &WeightName::gguf);
}

}  // namespace mw::models
