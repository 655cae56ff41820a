#include "meshwright/ops/mul.h"

#include "meshwright/ops/constant.h"
#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("mul", "stablehlo.multiply", 2, ElementClass::kNumber) {}
  ShardingRule Sharding(const Node&) const override {
    return ShardingRule::Elementwise().Product({0, 1});
  }
  void Vjp(VjpContext& ctx) const override {
    if (ctx.wants(0)) ctx.Add(0, Mul(ctx.ct(), ctx.operand(1)));
    if (ctx.wants(1)) ctx.Add(1, Mul(ctx.ct(), ctx.operand(0)));
  }
};

}  // namespace

const OpDef& MulOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Mul(Value a, Value b) { return graph::Apply(MulOp(), {a, b}); }

Value Mul(Value a, double b) { return Mul(a, FullLike(a, b)); }

}  // namespace mw::ops
