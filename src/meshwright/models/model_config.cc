#include "meshwright/models/model_config.h"

#include <fmt/format.h>

#include <cmath>

#include "meshwright/base/float32.h"

namespace mw::models {
namespace {

// Keeps every product of sizes within int64, and rejects damaged files early.
constexpr int64_t kMaxSize = int64_t{1} << 24;

absl::Status CheckSize(const char* field, int64_t value) {
  if (value >= 1 && value <= kMaxSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("model config: {} is {}; it must be between 1 and {}", field, value, kMaxSize));
}

}  // namespace

absl::Status ModelConfig::Validate() const {
  const std::pair<const char*, int64_t> sizes[] = {
      {"vocab_size", vocab_size}, {"hidden_size", hidden_size},   {"num_layers", num_layers},
      {"num_heads", num_heads},   {"num_kv_heads", num_kv_heads}, {"head_dim", head_dim},
      {"mlp_size", mlp_size}};
  for (const auto& [field, value] : sizes) {
    if (absl::Status status = CheckSize(field, value); !status.ok()) return status;
  }
  if (num_heads % num_kv_heads != 0) {
    return absl::InvalidArgumentError(
        fmt::format("model config: num_heads {} must be a multiple of num_kv_heads {}", num_heads,
                    num_kv_heads));
  }
  if (!(FitsFloat32(rms_norm_eps) && rms_norm_eps > 0)) {
    return absl::InvalidArgumentError(fmt::format(
        "model config: rms_norm_eps {} must be positive and a number of float32", rms_norm_eps));
  }
  if (max_position < 1) {
    return absl::InvalidArgumentError(
        fmt::format("model config: max_position {} must be positive", max_position));
  }
  if (!(std::isfinite(initializer_range) && initializer_range >= 0)) {
    return absl::InvalidArgumentError(fmt::format(
        "model config: initializer_range {} must be zero or positive", initializer_range));
  }
  return rope.Validate(head_dim);
}

int64_t ModelConfig::NumParameters() const {
  const int64_t attention = 2 * (num_heads + num_kv_heads) * head_dim * hidden_size;
  const int64_t mlp = 3 * hidden_size * mlp_size;
  const int64_t norms = 2 * hidden_size + (qk_norm ? 2 * head_dim : 0);
  const int64_t embeddings = (tie_word_embeddings ? 1 : 2) * vocab_size * hidden_size;
  return embeddings + num_layers * (attention + mlp + norms) + hidden_size;
}

}  // namespace mw::models
