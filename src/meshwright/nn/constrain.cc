#include "meshwright/nn/constrain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "meshwright/core/graph_error.h"
#include "meshwright/core/logical_axes.h"
#include "meshwright/ops/constrain.h"

namespace mw::nn {

const std::vector<std::string>& ActivationAxes() { return ActivationLogicalAxes(); }

graph::Value Constrain(graph::Value x, const std::vector<std::string>& axes) {
  return Constrain(x, axes, axes);
}

graph::Value Constrain(graph::Value x, const std::vector<std::string>& axes,
                       const std::vector<std::string>& cotangent_axes) {
  for (const auto* list : {&axes, &cotangent_axes}) {
    for (const std::string& axis : *list) {
      if (axis.empty() || std::ranges::find(ActivationAxes(), axis) != ActivationAxes().end()) {
        continue;
      }
      throw GraphError(absl::StatusCode::kInvalidArgument, "constrain",
                       fmt::format("no logical axis \"{}\"; use one of {}", axis,
                                   fmt::join(ActivationAxes(), ", ")),
                       x.graph().scope());
    }
  }
  return ops::Constrain(x, axes, cotangent_axes);
}

}  // namespace mw::nn
