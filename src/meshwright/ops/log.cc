#include "meshwright/ops/log.h"

#include "meshwright/ops/div.h"
#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("log", "stablehlo.log", 1) {}
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Div(ctx.ct(), ctx.operand(0))); }
};

}  // namespace

const OpDef& LogOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Log(Value x) { return graph::Apply(LogOp(), {x}); }

}  // namespace mw::ops
