#include "meshwright/ops/not.h"

#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("not", "stablehlo.not", 1, ElementClass::kPredOrInteger) {}
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
};

}  // namespace

const OpDef& NotOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Not(Value x) { return graph::Apply(NotOp(), {x}); }

}  // namespace mw::ops
