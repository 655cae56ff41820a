#include "meshwright/ops/exp.h"

#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("exp", "stablehlo.exponential", 1) {}
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Mul(ctx.ct(), ctx.result())); }
};

}  // namespace

const OpDef& ExpOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Exp(Value x) { return graph::Apply(ExpOp(), {x}); }

}  // namespace mw::ops
