#include "meshwright/ops/or.h"

#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("or", "stablehlo.or", 2, ElementClass::kPredOrInteger) {}
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
};

}  // namespace

const OpDef& OrOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Or(Value a, Value b) { return graph::Apply(OrOp(), {a, b}); }

}  // namespace mw::ops
