#include "meshwright/ops/logistic.h"

#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/sub.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("logistic", "stablehlo.logistic", 1) {}
  void Vjp(VjpContext& ctx) const override {
    const Value y = ctx.result();
    ctx.Add(0, Mul(ctx.ct(), Mul(y, Sub(1.0, y))));
  }
};

}  // namespace

const OpDef& LogisticOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Logistic(Value x) { return graph::Apply(LogisticOp(), {x}); }

}  // namespace mw::ops
