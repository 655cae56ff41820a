#include "meshwright/nn/rope_config.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "meshwright/base/float32.h"

namespace mw::nn {
namespace {

float Llama3Scaled(float f, const RopeConfig& config) {
  const auto original = static_cast<float>(config.original_max_position);
  const auto low = static_cast<float>(config.low_freq_factor);
  const auto high = static_cast<float>(config.high_freq_factor);
  const auto factor = static_cast<float>(config.factor);
  const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / f;
  if (wavelength < original / high) return f;
  if (wavelength > original / low) return f / factor;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1.0f - smooth) * f / factor + smooth * f;
}

absl::Status Bad(const std::string& message) {
  return absl::InvalidArgumentError("rope: " + message);
}

}  // namespace

std::string_view RopeTypeName(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kFreqFactors:
      return "freq_factors";
  }
  return "";
}

std::optional<RopeType> ParseRopeType(std::string_view name) {
  for (RopeType type : {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3}) {
    if (RopeTypeName(type) == name) return type;
  }
  return std::nullopt;
}

absl::Status RopeConfig::Validate(int64_t head_dim) const {
  if (head_dim <= 0 || head_dim % 2 != 0) {
    return Bad(fmt::format("head_dim {} must be even and positive", head_dim));
  }
  if (!(FitsFloat32(theta) && theta > 0)) {
    return Bad(fmt::format("rope_theta {} must be positive and a number of float32", theta));
  }
  if (!(FitsFloat32(factor) && factor >= 1)) {
    return Bad(fmt::format("factor {} must be at least 1 and a number of float32", factor));
  }
  if (type == RopeType::kLlama3) {
    if (original_max_position <= 0) {
      return Bad("rope_type llama3 needs original_max_position_embeddings, a positive number");
    }
    if (!(std::isfinite(high_freq_factor) && low_freq_factor > 0 &&
          high_freq_factor > low_freq_factor)) {
      return Bad(
          fmt::format("low_freq_factor {} must be positive and less than high_freq_factor {}",
                      low_freq_factor, high_freq_factor));
    }
  }
  if (type == RopeType::kFreqFactors) {
    if (static_cast<int64_t>(freq_factors.size()) != head_dim / 2) {
      return Bad(fmt::format("{} frequency factors for head_dim {}; give {}", freq_factors.size(),
                             head_dim, head_dim / 2));
    }
    for (float f : freq_factors) {
      if (!(std::isfinite(f) && f > 0)) {
        return Bad(fmt::format("frequency factor {} must be positive", f));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<float> RopeInverseFrequencies(const RopeConfig& config, int64_t head_dim) {
  std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(std::pow(config.theta, static_cast<double>(exponent)));
    float f = 1.0f / power;
    switch (config.type) {
      case RopeType::kDefault:
        break;
      case RopeType::kLinear:
        f /= static_cast<float>(config.factor);
        break;
      case RopeType::kLlama3:
        f = Llama3Scaled(f, config);
        break;
      case RopeType::kFreqFactors:
        f /= config.freq_factors[i];
        break;
    }
    frequencies[i] = f;
  }
  return frequencies;
}

std::vector<float> RopeFreqFactors(const RopeConfig& config, int64_t head_dim) {
  if (config.type == RopeType::kDefault) return {};
  if (config.type == RopeType::kFreqFactors) return config.freq_factors;
  RopeConfig unscaled;
  unscaled.theta = config.theta;
  std::vector<float> factors = RopeInverseFrequencies(unscaled, head_dim);
  const std::vector<float> scaled = RopeInverseFrequencies(config, head_dim);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] /= scaled[i];
  return factors;
}

}  // namespace mw::nn
