#include "meshwright/ops/rem.h"

#include "meshwright/ops/abs.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/floor.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/sign.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("rem", "stablehlo.remainder", 2, ElementClass::kNumber) {}
  void Vjp(VjpContext& ctx) const override {
    if (ctx.wants(0)) ctx.Add(0, ctx.ct());
    if (ctx.wants(1)) {
      const Value quotient = Div(ctx.operand(0), ctx.operand(1));
      const Value truncated = Mul(Sign(quotient), Floor(Abs(quotient)));
      ctx.Add(1, Neg(Mul(ctx.ct(), truncated)));
    }
  }
};

}  // namespace

const OpDef& RemOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Rem(Value a, Value b) { return graph::Apply(RemOp(), {a, b}); }

Value Rem(Value a, double b) { return Rem(a, FullLike(a, b)); }

}  // namespace mw::ops
