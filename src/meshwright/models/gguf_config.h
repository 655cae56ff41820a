// Model configs as GGUF files hold them (metadata keys).
#ifndef MESHWRIGHT_MODELS_GGUF_CONFIG_H_
#define MESHWRIGHT_MODELS_GGUF_CONFIG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/models/model_config.h"

namespace mw::models {

// How to look things up in a GGUF file, whoever reads it: nullopt for an absent key
// or another type (integers of any width are integers, numbers are numbers).
struct GgufLookup {
  std::function<std::optional<std::string>(std::string_view key)> string;
  std::function<std::optional<int64_t>(std::string_view key)> integer;
  std::function<std::optional<double>(std::string_view key)> number;
  std::function<std::optional<int64_t>(std::string_view key)> array_size;
  // Whether the file has a tensor of that name.
  std::function<bool(std::string_view name)> has_tensor;
  // The values of the tensor rope_freqs.weight; empty when there is none.
  std::vector<float> rope_freq_factors;
};

// Reads `general.architecture` and its keys (`llama.block_count`, …).
//
// The embeddings are tied exactly when there is no tensor output.weight. A scaling
// that the file states as factors becomes the rope type it came from when that gives
// these factors: the one of the file's meshwright.rope.* keys, Llama 3.1's or 3.2's. It
// stays factors otherwise: they are what other readers of the file use.
// Errors: NotFound for an unknown architecture, InvalidArgument naming a missing key
// or a bad value, Unimplemented for an unknown rope scaling.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
absl::StatusOr<ModelConfig> ModelConfigFromGguf(const GgufLookup& file);

using GgufEntry = std::pair<std::string, std::variant<uint32_t, float, std::string, double>>;

// The metadata of a model: what ModelConfigFromGguf reads, in the order in which
// converters write it. A scaling also needs the tensor rope_freqs.weight with
// nn::RopeFreqFactors when config.rope.type is kLlama3 or kFreqFactors: the format has no
// keys for kLlama3's parameters, so they are also kept in keys of our own, meshwright.rope.*.
absl::StatusOr<std::vector<GgufEntry>> ModelConfigToGguf(const ModelConfig& config);

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_GGUF_CONFIG_H_
