// RopeConfig: frequencies of rotary position embeddings.
#ifndef MESHWRIGHT_NN_ROPE_CONFIG_H_
#define MESHWRIGHT_NN_ROPE_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace mw::nn {

enum class RopeType {
  kDefault,      // theta^(-2i/H)
  kLinear,       // divided by `factor`
  kLlama3,       // long waves divided by `factor`, short ones kept, blended between
  kFreqFactors,  // divided by `freq_factors`, as GGUF files state a scaling
};

// "default", "linear", "llama3", "freq_factors".
std::string_view RopeTypeName(RopeType type);
// The inverse for the three types of Hugging Face configs.
std::optional<RopeType> ParseRopeType(std::string_view name);

struct RopeConfig {
  double theta = 10000.0;
  RopeType type = RopeType::kDefault;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 0;  // of kLlama3
  std::vector<float> freq_factors;    // of kFreqFactors, one per frequency

  // Errors: InvalidArgument naming the field and what it may be.
  absl::Status Validate(int64_t head_dim) const;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Inverse frequencies, in float32 steps as transformers takes them.
//
//   default: f[i] = theta^(-2i/head_dim)
//   llama3:  with wavelength w = 2 pi / f: f where w < original/high, f / factor where
//            w > original/low, else (1 - s) f / factor + s f with
//            s = (original / w - low) / (high - low)
//
// Returns head_dim / 2 values. REQUIRES: Validate(head_dim) is OK.
// Source: transformers, modeling_rope_utils.py; Llama 3.1 reference code.
std::vector<float> RopeInverseFrequencies(const RopeConfig& config, int64_t head_dim);

// What the frequencies of `config` divide the unscaled ones by, which is the tensor
// rope_freqs.weight of GGUF files. Empty for kDefault.
std::vector<float> RopeFreqFactors(const RopeConfig& config, int64_t head_dim);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_ROPE_CONFIG_H_
