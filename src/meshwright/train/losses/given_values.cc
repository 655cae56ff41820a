#include "meshwright/train/losses/given_values.h"

#include <fmt/format.h>

#include <cmath>

#include "meshwright/base/status_macros.h"

namespace mw::train {

absl::Status CheckGivenValue(const std::string& name, int64_t row, float value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} of row {} is {} where the token counts: give a finite number, or mask it",
                  name, row, std::isnan(value) ? std::abs(value) : value));
}

absl::Status CheckGivenValues(const data::Batch& batch, const BatchTensorSpec& spec) {
  const auto mask = batch.loss_mask.as<float>();
  const auto values = batch.extras.find(spec.name)->second.as<float>();
  const int64_t num_tokens = batch.tokens.num_elements();
  const int64_t per_token = static_cast<int64_t>(values.size()) / num_tokens;
  for (int64_t i = 0; i < num_tokens; ++i) {
    if (mask[i] == 0) continue;
    for (int64_t k = i * per_token; k < (i + 1) * per_token; ++k) {
      MW_RETURN_IF_ERROR(CheckGivenValue(spec.name, i / batch.tokens.dims()[1], values[k]));
    }
  }
  return absl::OkStatus();
}

}  // namespace mw::train
