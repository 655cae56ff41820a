#include "meshwright/ops/log1p.h"

#include "meshwright/ops/add.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("log1p", "stablehlo.log_plus_one", 1) {}
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Div(ctx.ct(), Add(ctx.operand(0), 1.0))); }
};

}  // namespace

const OpDef& Log1pOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Log1p(Value x) { return graph::Apply(Log1pOp(), {x}); }

}  // namespace mw::ops
