#include "meshwright/ops/constrain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace mw::ops {
namespace {

using Axes = std::vector<std::string>;

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "constrain"; }
  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    for (const char* list : {"axes", "cotangent_axes"}) {
      const Axes& axes = node.attrs().Get<Axes>(list);
      if (static_cast<int>(axes.size()) != x.rank()) {
        node.Fail(fmt::format("{} [{}] has {} names for {}; give one per dim", list,
                              fmt::join(axes, ", "), axes.size(), x.ToString()));
      }
    }
    return {TensorType(x.dtype, x.dims)};
  }
  ShardingRule Sharding(const Node&) const override { return ShardingRule::Special(); }
  // An identity: what is kept is the value, once, not a second copy of it.
  bool cheap_to_recompute() const override { return true; }
  void Vjp(VjpContext& ctx) const override {
    const Attributes& attrs = ctx.node().attrs();
    ctx.Add(0, Constrain(ctx.ct(), attrs.Get<Axes>("cotangent_axes"), attrs.Get<Axes>("axes")));
  }
  void Lower(LowerContext& ctx) const override { ctx.Set(0, ctx.operand(0)); }
};

}  // namespace

const OpDef& ConstrainOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Constrain(Value x, std::vector<std::string> axes, std::vector<std::string> cotangent_axes) {
  return graph::Apply(ConstrainOp(), {x},
                      {{"axes", std::move(axes)}, {"cotangent_axes", std::move(cotangent_axes)}});
}

}  // namespace mw::ops
