#include "meshwright/models/model.h"

#include <fmt/format.h>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/core/remat_policy.h"
#include "meshwright/nn/lm_head.h"

namespace mw::models {

absl::Status ModelOptions::Validate() const {
  if (const auto policy = ParseRematPolicy(remat_policy); !policy.ok()) return policy.status();
  if (compute_dtype != DType::kF32 && compute_dtype != DType::kBF16) {
    return absl::InvalidArgumentError(fmt::format(
        "compute_dtype {} is not supported; use f32 or bf16", DTypeName(compute_dtype)));
  }
  if (matmul_precision != "default" && matmul_precision != "highest") {
    return absl::InvalidArgumentError(fmt::format(
        "matmul_precision \"{}\" is unknown; use default or highest", matmul_precision));
  }
  if (attention != "auto" && attention != "plain" && attention != "flash") {
    return absl::InvalidArgumentError(
        fmt::format("attention \"{}\" is unknown; use auto, plain or flash", Excerpt(attention)));
  }
  return lora.Validate();
}

graph::Value Model::HeadWeight(const nn::ParamMap& params) const {
  return nn::Param(params, HeadName());
}

graph::Value Model::Logits(const nn::ParamMap& params, graph::Value hidden,
                           const ModelOptions& options) const {
  return nn::Logits(hidden, nn::FindWeight(params, HeadName()), options.compute());
}

TensorType Model::CacheType(int64_t num_rows, int64_t num_slots, DType dtype) const {
  return TensorType(
      dtype, {config_.num_layers, num_rows, num_slots, config_.num_kv_heads, config_.head_dim});
}

}  // namespace mw::models
