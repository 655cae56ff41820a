#include "meshwright/nn/param.h"

#include <fmt/format.h>

#include "meshwright/base/nearest_name.h"
#include "meshwright/core/graph_error.h"

namespace mw::nn {

graph::Value Param(const ParamMap& params, std::string_view name) {
  const auto it = params.find(name);
  if (it != params.end()) return it->second;
  std::vector<std::string> known;
  for (const auto& [key, value] : params) known.push_back(key);
  throw GraphError(absl::StatusCode::kInvalidArgument, "param",
                   fmt::format("no parameter \"{}\" among the {} given{}", name, known.size(),
                               NearestNote(name, known)));
}

std::string ScalesName(std::string_view name) { return std::string(name) + ".scales"; }

Weight FindWeight(const ParamMap& params, std::string_view name) {
  const auto scales = params.find(ScalesName(name));
  if (scales == params.end()) return Param(params, name);
  return {Param(params, name), scales->second};
}

}  // namespace mw::nn
