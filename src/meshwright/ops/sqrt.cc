#include "meshwright/ops/sqrt.h"

#include "meshwright/ops/div.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("sqrt", "stablehlo.sqrt", 1) {}
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Div(Mul(ctx.ct(), 0.5), ctx.result())); }
};

}  // namespace

const OpDef& SqrtOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Sqrt(Value x) { return graph::Apply(SqrtOp(), {x}); }

}  // namespace mw::ops
