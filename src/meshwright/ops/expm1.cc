#include "meshwright/ops/expm1.h"

#include "meshwright/ops/add.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("expm1", "stablehlo.exponential_minus_one", 1) {}
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Mul(ctx.ct(), Add(ctx.result(), 1.0))); }
};

}  // namespace

const OpDef& Expm1Op() {
  static const Def* const def = new Def();
  return *def;
}

Value Expm1(Value x) { return graph::Apply(Expm1Op(), {x}); }

}  // namespace mw::ops
