#include "meshwright/ops/pow.h"

#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/sub.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("pow", "stablehlo.power", 2, ElementClass::kNumber) {}
  void Vjp(VjpContext& ctx) const override {
    const Value a = ctx.operand(0);
    const Value b = ctx.operand(1);
    // The inner selects keep the branch that is not taken finite: its derivative
    // would otherwise turn the zero of the outer one into NaN.
    if (ctx.wants(0)) {
      const Value flat = Equal(b, 0.0);
      const Value lower = Pow(a, Select(flat, FullLike(b, 1.0), Sub(b, 1.0)));
      ctx.Add(0, Mul(ctx.ct(), Mul(b, lower)));
    }
    if (ctx.wants(1)) {
      const Value log_a = Log(Select(Equal(a, 0.0), FullLike(a, 1.0), a));
      ctx.Add(1, Mul(ctx.ct(), Mul(log_a, ctx.result())));
    }
  }
};

}  // namespace

const OpDef& PowOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Pow(Value a, Value b) { return graph::Apply(PowOp(), {a, b}); }

Value Pow(Value a, double b) { return Pow(a, FullLike(a, b)); }

}  // namespace mw::ops
