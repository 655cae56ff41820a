#include "meshwright/ops/div.h"

#include "meshwright/ops/constant.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("div", "stablehlo.divide", 2, ElementClass::kNumber) {}
  ShardingRule Sharding(const Node&) const override {
    return ShardingRule::Elementwise().Product({0});
  }
  void Vjp(VjpContext& ctx) const override {
    const Value b = ctx.operand(1);
    if (ctx.wants(0)) ctx.Add(0, Div(ctx.ct(), b));
    if (ctx.wants(1)) ctx.Add(1, Neg(Mul(Div(ctx.ct(), b), ctx.result())));
  }
};

}  // namespace

const OpDef& DivOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Div(Value a, Value b) { return graph::Apply(DivOp(), {a, b}); }

Value Div(Value a, double b) { return Div(a, FullLike(a, b)); }

Value Div(double a, Value b) { return Div(FullLike(b, a), b); }

}  // namespace mw::ops
