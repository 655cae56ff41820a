// Which numbers a program that computes in float32 can be given.
#ifndef MESHWRIGHT_BASE_FLOAT32_H_
#define MESHWRIGHT_BASE_FLOAT32_H_

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "absl/status/status.h"

namespace mw {

// Whether float32 holds `value` with its usual precision: it is 0, or finite and normal as
// float32. Devices flush smaller numbers to 0.
inline bool FitsFloat32(double value) {
  const double magnitude = std::abs(value);
  return value == 0 || (magnitude >= static_cast<double>(std::numeric_limits<float>::min()) &&
                        magnitude <= static_cast<double>(std::numeric_limits<float>::max()));
}

// Errors: InvalidArgument naming the setting and its value when that does not fit.
inline absl::Status CheckFloat32(std::string_view name, double value) {
  if (FitsFloat32(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{} {} is no number of float32: give 0 or one of a magnitude between 1.2e-38 and 3.4e+38",
      name, value));
}

}  // namespace mw

#endif  // MESHWRIGHT_BASE_FLOAT32_H_
