#include "meshwright/ops/tanh.h"

#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/sub.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("tanh", "stablehlo.tanh", 1) {}
  void Vjp(VjpContext& ctx) const override {
    const Value y = ctx.result();
    ctx.Add(0, Mul(ctx.ct(), Sub(1.0, Mul(y, y))));
  }
};

}  // namespace

const OpDef& TanhOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Tanh(Value x) { return graph::Apply(TanhOp(), {x}); }

}  // namespace mw::ops
