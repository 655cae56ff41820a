#include "meshwright/ops/neg.h"

#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("neg", "stablehlo.negate", 1, ElementClass::kNumber) {}
  ShardingRule Sharding(const Node&) const override { return ShardingRule::Elementwise().Sum({0}); }
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Neg(ctx.ct())); }
};

}  // namespace

const OpDef& NegOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Neg(Value x) { return graph::Apply(NegOp(), {x}); }

}  // namespace mw::ops
