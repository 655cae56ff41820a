#include "meshwright/ops/name.h"

#include <fmt/format.h>

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "name"; }
  std::vector<TensorType> InferTypes(const Node& node) const override {
    if (node.attrs().String("name").empty()) {
      node.Fail(fmt::format("the name of {} is empty", node.operand(0).type().ToString()));
    }
    return {TensorType(node.operand(0).dtype(), node.operand(0).dims())};
  }
  ShardingRule Sharding(const Node&) const override { return ShardingRule::Elementwise().Sum({0}); }
  // Recomputing an identity is free; a policy that keeps the name asks first.
  bool cheap_to_recompute() const override { return true; }
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, ctx.ct()); }
  void Lower(LowerContext& ctx) const override { ctx.Set(0, ctx.operand(0)); }
};

}  // namespace

const OpDef& NameOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Name(Value x, std::string name) {
  return graph::Apply(NameOp(), {x}, {{"name", std::move(name)}});
}

}  // namespace mw::ops
