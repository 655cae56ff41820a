#include "meshwright/nn/constrain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "meshwright/core/graph_error.h"

namespace mw::nn {

const std::vector<std::string>& ActivationAxes() {
  static const auto* axes = new std::vector<std::string>{
      "activation_batch",    "activation_length", "activation_embed", "activation_heads",
      "activation_kv_heads", "activation_mlp",    "activation_vocab"};
  return *axes;
}

graph::Value Constrain(graph::Value x, const std::vector<std::string>& axes) {
  if (static_cast<int>(axes.size()) != x.rank()) {
    throw GraphError(
        absl::StatusCode::kInvalidArgument, "constrain",
        fmt::format("{} names for {}; give one per dim", axes.size(), x.type().ToString()),
        x.graph().scope());
  }
  for (const std::string& axis : axes) {
    if (axis.empty() || std::ranges::find(ActivationAxes(), axis) != ActivationAxes().end()) {
      continue;
    }
    throw GraphError(absl::StatusCode::kInvalidArgument, "constrain",
                     fmt::format("no logical axis \"{}\"; use one of {}", axis,
                                 fmt::join(ActivationAxes(), ", ")),
                     x.graph().scope());
  }
  return x;
}

}  // namespace mw::nn
