#include "meshwright/train/engine_options.h"

#include <fmt/format.h>

#include "meshwright/base/float32.h"
#include "meshwright/base/status_macros.h"

namespace mw::train {
namespace {

absl::Status CheckTrainable(const char* name, DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kBF16) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {} must be f32 or bf16", name, DTypeName(dtype)));
}

}  // namespace

absl::Status EngineOptions::Validate() const {
  MW_RETURN_IF_ERROR(model.Validate());
  MW_RETURN_IF_ERROR(optimizer.Validate());
  MW_RETURN_IF_ERROR(schedule.Validate());
  MW_RETURN_IF_ERROR(loss.Validate());
  MW_RETURN_IF_ERROR(CheckTrainable("weight_dtype", weight_dtype));
  MW_RETURN_IF_ERROR(CheckTrainable("grad_dtype", grad_dtype));
  if (!(gradient_clipping_threshold >= 0)) {
    return absl::InvalidArgumentError(
        fmt::format("gradient_clipping_threshold {} must be positive, or 0 for no clipping",
                    gradient_clipping_threshold));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("gradient_clipping_threshold", gradient_clipping_threshold));
  if (skip_step_interval < 2 || skip_step_interval > (1 << 20)) {
    return absl::InvalidArgumentError(
        fmt::format("skip_step_interval {} must be between 2 and {}", skip_step_interval, 1 << 20));
  }
  if (!(skip_step_scaling_factor > 0)) {
    return absl::InvalidArgumentError(
        fmt::format("skip_step_scaling_factor {} must be positive", skip_step_scaling_factor));
  }
  MW_RETURN_IF_ERROR(CheckFloat32("skip_step_scaling_factor", skip_step_scaling_factor));
  if (max_inflight_computations < 1) {
    return absl::InvalidArgumentError(
        fmt::format("max_inflight_computations {} must be at least 1", max_inflight_computations));
  }
  return absl::OkStatus();
}

}  // namespace mw::train
