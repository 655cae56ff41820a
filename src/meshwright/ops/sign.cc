#include "meshwright/ops/sign.h"

#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("sign", "stablehlo.sign", 1, ElementClass::kSigned) {}
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
};

}  // namespace

const OpDef& SignOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Sign(Value x) { return graph::Apply(SignOp(), {x}); }

}  // namespace mw::ops
