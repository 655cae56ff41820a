#include "meshwright/ops/and.h"

#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("and", "stablehlo.and", 2, ElementClass::kPredOrInteger) {}
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
};

}  // namespace

const OpDef& AndOp() {
  static const Def* const def = new Def();
  return *def;
}

Value And(Value a, Value b) { return graph::Apply(AndOp(), {a, b}); }

}  // namespace mw::ops
