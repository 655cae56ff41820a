#include "meshwright/train/engine_options.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "meshwright/base/check.h"
#include "meshwright/base/float32.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/compile/compiler_flags.h"
#include "meshwright/train/metrics.h"

namespace mw::train {
namespace {

absl::Status CheckTrainable(const char* name, DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kBF16) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {} must be f32 or bf16", name, DTypeName(dtype)));
}

// Two metrics of one name would be one in the records.
absl::Status CheckMetrics(const Loss& loss) {
  std::set<std::string> names;
  std::set<std::string> recorded;
  int num_nll = 0;
  for (const MetricSpec& spec : loss.metrics()) {
    num_nll += spec.is_nll ? 1 : 0;
    // The objective is learning/loss, whatever it is called.
    if (const std::string name = RecordName(spec);
        !names.empty() && (IsReservedRecordName(name) || !recorded.insert(name).second)) {
      return absl::InvalidArgumentError(
          fmt::format("the loss's metric \"{}\" would be recorded as {}, which records have "
                      "already: give it another name",
                      spec.name, name));
    }
    if (!(spec.eps >= 0 && spec.min_denom >= 0)) {
      return absl::InvalidArgumentError(fmt::format(
          "the loss's metric {} has eps {} and min_denom {}, which must not be negative", spec.name,
          spec.eps, spec.min_denom));
    }
    if (!spec.name.empty() && names.insert(spec.name).second) continue;
    return absl::InvalidArgumentError(
        fmt::format("the loss has two metrics called \"{}\", or one without a name", spec.name));
  }
  if (names.empty()) {
    return absl::InvalidArgumentError("the loss has no metric; the first is what is minimized");
  }
  if (loss.metrics()[0].is_max) {
    return absl::InvalidArgumentError(
        "the loss's first metric is_max, and what is minimized is a mean");
  }
  if (num_nll > 1) {
    return absl::InvalidArgumentError(
        fmt::format("the loss says of {} metrics that they are the negative log-likelihood "
                    "(is_nll), and perplexity is of one",
                    num_nll));
  }
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<const Loss> EngineOptions::StepLoss() const {
  if (loss_fn != nullptr) return loss_fn;
  auto named = CreateLoss(loss);
  MW_CHECK_MSG(named.ok(), "options were validated");
  return *std::move(named);
}

absl::Status EngineOptions::Validate() const {
  MW_RETURN_IF_ERROR(model.Validate());
  MW_RETURN_IF_ERROR(optimizer.Validate());
  MW_RETURN_IF_ERROR(schedule.Validate());
  MW_RETURN_IF_ERROR(loss.Validate());
  MW_RETURN_IF_ERROR(CheckMetrics(*StepLoss()));
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
  if (!(device_peak_tflops >= 0)) {
    return absl::InvalidArgumentError(fmt::format(
        "device_peak_tflops {} must be positive, or 0 for not known", device_peak_tflops));
  }
  MW_RETURN_IF_ERROR(compile::ParseCompilerFlags(target.compiler_flags).status());
  if (max_inflight_computations < 1) {
    return absl::InvalidArgumentError(
        fmt::format("max_inflight_computations {} must be at least 1", max_inflight_computations));
  }
  return absl::OkStatus();
}

}  // namespace mw::train
