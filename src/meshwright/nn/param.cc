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

}  // namespace mw::nn
