#include "meshwright/ops/cos.h"

#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/neg.h"
#include "meshwright/ops/sin.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("cos", "stablehlo.cosine", 1) {}
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Neg(Mul(ctx.ct(), Sin(ctx.operand(0))))); }
};

}  // namespace

const OpDef& CosOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Cos(Value x) { return graph::Apply(CosOp(), {x}); }

}  // namespace mw::ops
