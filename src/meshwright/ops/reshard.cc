#include "meshwright/ops/reshard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "reshard"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const PartitionSpec spec = ReshardSpec(node);
    if (spec.dims.size() > x.dims.size()) {
      node.Fail(fmt::format("spec {} has more dims than {}", spec.ToString(), x.ToString()));
    }
    return {TensorType(x.dtype, x.dims)};
  }

  ShardingRule Sharding(const Node&) const override { return ShardingRule::Special(); }
  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    PartitionSpec spec = ReshardSpec(ctx.node());
    spec.unreduced.clear();
    ctx.Add(0, Reshard(ctx.ct(), spec));
  }

  void Lower(LowerContext& ctx) const override { ctx.Set(0, ctx.operand(0)); }
};

}  // namespace

const OpDef& ReshardOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Reshard(Value x, const PartitionSpec& spec) {
  std::vector<std::string> dims;
  for (const auto& axes : spec.dims) dims.push_back(fmt::format("{}", fmt::join(axes, ",")));
  return graph::Apply(ReshardOp(), {x}, {{"dims", dims}, {"unreduced", spec.unreduced}});
}

PartitionSpec ReshardSpec(const Node& node) {
  PartitionSpec spec;
  for (const std::string& axes : node.attrs().Get<std::vector<std::string>>("dims")) {
    spec.dims.emplace_back();
    for (size_t begin = 0; begin < axes.size();) {
      const size_t end = std::min(axes.find(',', begin), axes.size());
      spec.dims.back().push_back(axes.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  spec.unreduced = node.attrs().Get<std::vector<std::string>>("unreduced");
  return spec;
}

}  // namespace mw::ops
