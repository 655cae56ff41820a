#include "meshwright/ops/rsqrt.h"

#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("rsqrt", "stablehlo.rsqrt", 1) {}
  void Vjp(VjpContext& ctx) const override {
    const Value y = ctx.result();
    ctx.Add(0, Mul(ctx.ct(), Mul(Mul(y, -0.5), Mul(y, y))));
  }
};

}  // namespace

const OpDef& RsqrtOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Rsqrt(Value x) { return graph::Apply(RsqrtOp(), {x}); }

}  // namespace mw::ops
