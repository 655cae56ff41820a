#include "meshwright/spmd/rules.h"

#include <algorithm>
#include <optional>

namespace mw::spmd {

bool LogicalRules::Has(const std::string& logical) const {
  return std::ranges::any_of(rules_, [&](const LogicalRule& r) { return r.logical == logical; });
}

PartitionSpec LogicalRules::Resolve(const std::vector<std::string>& logical_axes,
                                    const Mesh& mesh) const {
  std::vector<std::optional<std::vector<std::string>>> dims(logical_axes.size());
  const auto used = [&](const std::string& axis) {
    return std::ranges::any_of(
        dims, [&](const auto& d) { return d && std::ranges::find(*d, axis) != d->end(); });
  };
  for (const LogicalRule& rule : rules_) {
    for (size_t d = 0; d < logical_axes.size(); ++d) {
      if (dims[d] || logical_axes[d] != rule.logical) continue;
      std::vector<std::string> axes;
      for (const std::string& axis : rule.mesh_axes) {
        if (mesh.Has(axis)) axes.push_back(axis);
      }
      if (std::ranges::any_of(axes, used)) continue;
      dims[d] = std::move(axes);
    }
  }
  PartitionSpec spec;
  for (auto& d : dims) spec.dims.push_back(d.value_or(std::vector<std::string>()));
  return spec;
}

}  // namespace mw::spmd
