// LogicalRules: which mesh axes shard which logical axis.
#ifndef MESHWRIGHT_SPMD_RULES_H_
#define MESHWRIGHT_SPMD_RULES_H_

#include <string>
#include <utility>
#include <vector>

#include "meshwright/core/mesh.h"
#include "meshwright/core/partition_spec.h"

namespace mw::spmd {

struct LogicalRule {
  std::string logical;
  std::vector<std::string> mesh_axes;  // major to minor; none: the dim stays whole

  friend bool operator==(const LogicalRule&, const LogicalRule&) = default;
};

// An ordered list; a logical axis may have several rules, of which the first that
// can be used wins.
class LogicalRules {
 public:
  LogicalRules() = default;
  explicit LogicalRules(std::vector<LogicalRule> rules) : rules_(std::move(rules)) {}

  const std::vector<LogicalRule>& rules() const { return rules_; }
  // Whether some rule names `logical`.
  bool Has(const std::string& logical) const;

  // The spec of a tensor whose dims have these logical axes ("" for none); it has one
  // entry per dim and keeps axes of size 1.
  //
  // Rules are tried in their order, not in that of the dims. Mesh axes that `mesh` does
  // not have are dropped from a rule; then a rule of which an axis already shards another
  // dim of the tensor is skipped whole. A rule that names no axis, or none that `mesh`
  // has, settles its dim too: it stays whole, whatever later rules say. So does a dim
  // whose logical axis no rule settles.
  // Errors: GraphError(kInvalidArgument) when two dims have the same logical axis.
  // Source: flax.linen.logical_to_mesh_axes, which MaxText's rules are for. It looks for
  // conflicts before the absent axes go: there the mesh has every axis, mostly of size 1.
  PartitionSpec Resolve(const std::vector<std::string>& logical_axes, const Mesh& mesh) const;

 private:
  std::vector<LogicalRule> rules_;
};

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_RULES_H_
