#include "meshwright/ops/shift_left.h"

#include "meshwright/ops/constant.h"
#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("shift_left", "stablehlo.shift_left", 2, ElementClass::kInteger) {}
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
};

}  // namespace

const OpDef& ShiftLeftOp() {
  static const Def* const def = new Def();
  return *def;
}

Value ShiftLeft(Value a, Value b) { return graph::Apply(ShiftLeftOp(), {a, b}); }

Value ShiftLeft(Value a, double b) { return ShiftLeft(a, FullLike(a, b)); }

}  // namespace mw::ops
