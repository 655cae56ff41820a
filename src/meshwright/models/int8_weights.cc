#include "meshwright/models/int8_weights.h"

#include <fmt/format.h>

#include "meshwright/ops/quantized_dot.h"

namespace mw::models {

ModelOptions WithFloatWeights(ModelOptions options) {
  options.int8_weights = false;
  return options;
}

bool BecomesInt8(const nn::ParamSpec& spec) {
  // The dims of one layer's.
  const size_t rank = spec.dims.size() - (spec.stacked ? 1 : 0);
  return rank == 2 && !spec.adapter;
}

std::vector<nn::ParamSpec> AsInt8(const std::vector<nn::ParamSpec>& params) {
  std::vector<nn::ParamSpec> all;
  for (const nn::ParamSpec& spec : params) {
    all.push_back(spec);
    if (!BecomesInt8(spec)) continue;
    all.back().dtype = DType::kS8;
    nn::ParamSpec& scales = all.emplace_back(spec);
    scales.name = nn::ScalesName(spec.name);
    scales.dims.back() /= ops::kQuantizationBlock;
    scales.axes.back() = "";
    scales.hf_names.clear();
    scales.dtype = DType::kF32;
  }
  return all;
}

absl::Status CheckInt8(const std::vector<nn::ParamSpec>& params) {
  for (const nn::ParamSpec& spec : params) {
    if (!BecomesInt8(spec) || spec.dims.back() % ops::kQuantizationBlock == 0) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} has rows of {} numbers; weights of int8 have rows in blocks of {}",
                    spec.name, spec.dims.back(), ops::kQuantizationBlock));
  }
  return absl::OkStatus();
}

}  // namespace mw::models
