#include "meshwright/ops/abs.h"

#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/sign.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("abs", "stablehlo.abs", 1, ElementClass::kSigned) {}
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Mul(ctx.ct(), Sign(ctx.operand(0)))); }
};

}  // namespace

const OpDef& AbsOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Abs(Value x) { return graph::Apply(AbsOp(), {x}); }

}  // namespace mw::ops
