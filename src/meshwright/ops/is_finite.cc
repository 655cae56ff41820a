#include "meshwright/ops/is_finite.h"

#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "is_finite"; }
  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kFloat);
    return {TensorType(DType::kPred, node.operand(0).dims())};
  }
  ShardingRule Sharding(const Node&) const override { return ShardingRule::Elementwise(); }
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
  bool cheap_to_recompute() const override { return true; }
  void Lower(LowerContext& ctx) const override { ctx.EmitGeneric("stablehlo.is_finite"); }
};

}  // namespace

const OpDef& IsFiniteOp() {
  static const Def* const def = new Def();
  return *def;
}

Value IsFinite(Value x) { return graph::Apply(IsFiniteOp(), {x}); }

}  // namespace mw::ops
