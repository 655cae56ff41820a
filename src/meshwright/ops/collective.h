// What the collective ops share. They stand in per-device programs only: the
// partitioner writes them, with the groups of its mesh, after differentiation.
#ifndef MESHWRIGHT_OPS_COLLECTIVE_H_
#define MESHWRIGHT_OPS_COLLECTIVE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// The devices among which a collective runs: equal groups that take in every
// device once, each in the order of the parts.
struct CollectiveGroups {
  std::vector<std::vector<int64_t>> groups;
  // The mesh axes that the groups span, for people and for the census.
  std::vector<std::string> axes;

  int64_t size() const { return static_cast<int64_t>(groups.at(0).size()); }
  // Whether one of `some` is among the axes.
  bool IsOver(const std::vector<std::string>& some) const;
};

// A collective's groups as it keeps them in its attributes ("groups",
// "group_size", "axes"), and back.
void SetGroups(Attributes& attrs, const CollectiveGroups& groups);
CollectiveGroups GroupsOf(const Node& node);

// What a device sends in one execution, in bytes, by the ring algorithms: all-reduce
// 2 (n - 1) / n of its operand, reduce-scatter and all-to-all (n - 1) / n of it, all-gather n - 1
// times it.
int64_t SentBytes(const Node& collective);

class CollectiveOp : public OpDef {
 public:
  explicit CollectiveOp(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  ShardingRule Sharding(const Node&) const override { return ShardingRule::Replicated(); }
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}

 protected:
  // Fails unless the groups are equal, not empty and without repetition, and `dim`
  // of the operand exists and is a multiple of `multiple`.
  static void CheckGroups(const Node& node);
  static void CheckDim(const Node& node, int64_t dim, int64_t multiple);
  // "channel_handle = …, replica_groups = …[, use_global_device_ids]".
  static std::string GroupAttributes(LowerContext& ctx, bool global_ids = true);
  // A region that combines two scalars of the operand's dtype: " ({ … })".
  static std::string CombineRegion(LowerContext& ctx, std::string_view kind);
  // `"mnemonic"(%x) <{attributes}> region : (type) -> type`.
  static void Emit(LowerContext& ctx, std::string_view mnemonic, std::string_view attributes,
                   std::string_view region = "");

 private:
  std::string name_;
};

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_COLLECTIVE_H_
