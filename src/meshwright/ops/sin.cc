#include "meshwright/ops/sin.h"

#include "meshwright/ops/cos.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("sin", "stablehlo.sine", 1) {}
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Mul(ctx.ct(), Cos(ctx.operand(0)))); }
};

}  // namespace

const OpDef& SinOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Sin(Value x) { return graph::Apply(SinOp(), {x}); }

}  // namespace mw::ops
