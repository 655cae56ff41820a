#include "meshwright/ops/compose.h"

#include <fmt/format.h>

#include "meshwright/ops/max.h"
#include "meshwright/ops/min.h"
#include "meshwright/ops/mul.h"

namespace mw::ops {

Value Square(Value x) { return Mul(x, x); }

Value Clamp(Value x, double low, double high) {
  if (!(low <= high)) {
    throw GraphError(
        absl::StatusCode::kInvalidArgument, "clamp",
        fmt::format("low {} is not at most high {} for {}", low, high, x.type().ToString()),
        x.graph().scope());
  }
  return Minimum(Maximum(x, low), high);
}

}  // namespace mw::ops
