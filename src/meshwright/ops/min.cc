#include "meshwright/ops/min.h"

#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/select.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("min", "stablehlo.minimum", 2, ElementClass::kNumber) {}
  void Vjp(VjpContext& ctx) const override {
    const Value a = ctx.operand(0);
    const Value b = ctx.operand(1);
    const Value zero = FullLike(ctx.ct(), 0.0);
    const Value tie = Select(Equal(a, b), Mul(ctx.ct(), 0.5), zero);
    if (ctx.wants(0)) ctx.Add(0, Select(Less(a, b), ctx.ct(), tie));
    if (ctx.wants(1)) ctx.Add(1, Select(Less(b, a), ctx.ct(), tie));
  }
};

}  // namespace

const OpDef& MinOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Minimum(Value a, Value b) { return graph::Apply(MinOp(), {a, b}); }

Value Minimum(Value a, double b) { return Minimum(a, FullLike(a, b)); }

}  // namespace mw::ops
