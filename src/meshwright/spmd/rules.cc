#include "meshwright/spmd/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "meshwright/core/graph_error.h"

namespace mw::spmd {

bool LogicalRules::Has(const std::string& logical) const {
  return std::ranges::any_of(rules_, [&](const LogicalRule& r) { return r.logical == logical; });
}

PartitionSpec LogicalRules::Resolve(const std::vector<std::string>& logical_axes,
                                    const Mesh& mesh) const {
  for (size_t d = 0; d < logical_axes.size(); ++d) {
    for (size_t e = 0; e < d; ++e) {
      if (!logical_axes[d].empty() && logical_axes[d] == logical_axes[e]) {
        throw GraphError(absl::StatusCode::kInvalidArgument, "rules",
                         fmt::format("dims {} and {} are both {}; a mesh axis can shard only one "
                                     "of them, so give one another name or none",
                                     e, d, logical_axes[d]));
      }
    }
  }
  std::vector<std::optional<std::vector<std::string>>> dims(logical_axes.size());
  const auto used = [&](const std::string& axis) {
    return std::ranges::any_of(
        dims, [&](const auto& d) { return d && std::ranges::find(*d, axis) != d->end(); });
  };
  for (const LogicalRule& rule : rules_) {
    const auto found = std::ranges::find(logical_axes, rule.logical);
    if (rule.logical.empty() || found == logical_axes.end()) continue;
    auto& dim = dims[static_cast<size_t>(found - logical_axes.begin())];
    if (dim) continue;
    std::vector<std::string> axes;
    for (const std::string& axis : rule.mesh_axes) {
      if (mesh.Has(axis)) axes.push_back(axis);
    }
    if (std::ranges::any_of(axes, used)) continue;
    dim = std::move(axes);
  }
  PartitionSpec spec;
  for (auto& d : dims) spec.dims.push_back(d.value_or(std::vector<std::string>()));
  return spec;
}

}  // namespace mw::spmd
