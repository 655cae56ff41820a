#include "meshwright/ops/stop_gradient.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "stop_gradient"; }
  std::vector<TensorType> InferTypes(const Node& node) const override {
    return {TensorType(node.operand(0).dtype(), node.operand(0).dims())};
  }
  ShardingRule Sharding(const Node&) const override { return ShardingRule::Elementwise().Sum({0}); }
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
  bool cheap_to_recompute() const override { return true; }
  void Lower(LowerContext& ctx) const override { ctx.Set(0, ctx.operand(0)); }
};

}  // namespace

const OpDef& StopGradientOp() {
  static const Def* const def = new Def();
  return *def;
}

Value StopGradient(Value x) { return graph::Apply(StopGradientOp(), {x}); }

}  // namespace mw::ops
