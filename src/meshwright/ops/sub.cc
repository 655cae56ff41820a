#include "meshwright/ops/sub.h"

#include "meshwright/ops/constant.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/neg.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("sub", "stablehlo.subtract", 2, ElementClass::kNumber) {}
  ShardingRule Sharding(const Node&) const override {
    return ShardingRule::Elementwise().Sum({0, 1});
  }
  void Vjp(VjpContext& ctx) const override {
    if (ctx.wants(0)) ctx.Add(0, ctx.ct());
    if (ctx.wants(1)) ctx.Add(1, Neg(ctx.ct()));
  }
};

}  // namespace

const OpDef& SubOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Sub(Value a, Value b) { return graph::Apply(SubOp(), {a, b}); }

Value Sub(Value a, double b) { return Sub(a, FullLike(a, b)); }

Value Sub(double a, Value b) { return Sub(FullLike(b, a), b); }

}  // namespace mw::ops
