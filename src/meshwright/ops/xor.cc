#include "meshwright/ops/xor.h"

#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("xor", "stablehlo.xor", 2, ElementClass::kPredOrInteger) {}
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
};

}  // namespace

const OpDef& XorOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Xor(Value a, Value b) { return graph::Apply(XorOp(), {a, b}); }

}  // namespace mw::ops
