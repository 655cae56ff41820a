#include "meshwright/train/step_flops.h"

#include <fmt/format.h>

#include <algorithm>

namespace mw::train {

StepFlops::StepFlops(const models::ModelConfig& config, const StepParams& params) {
  const bool has_head = std::ranges::any_of(
      params.all, [](const nn::ParamSpec& spec) { return spec.name == "lm_head.weight"; });
  for (const nn::ParamSpec& spec : params.all) {
    const size_t rank = spec.dims.size() - (spec.stacked ? 1 : 0);
    if (rank < 2 || (has_head && spec.name == "embed_tokens.weight")) continue;
    products += NumElements(spec.dims) * (spec.trainable ? 6 : 4);
  }
  attention = 12 * config.num_layers * config.num_heads * config.head_dim;
}

std::string StepFlops::ToString() const {
  return fmt::format(
      "a token needs {:.4g} GFLOP in matrix products and {:.4g} MFLOP for each "
      "token that it sees, forward and backward",
      1e-9 * static_cast<double>(products), 1e-6 * static_cast<double>(attention));
}

int64_t NumAttendedPairs(const data::Batch& batch) {
  const auto segments = batch.segment_ids.as<int32_t>();
  const auto positions = batch.positions.as<int32_t>();
  int64_t pairs = 0;
  for (size_t i = 0; i < segments.size(); ++i) pairs += segments[i] != 0 ? positions[i] + 1 : 0;
  return pairs;
}

}  // namespace mw::train
