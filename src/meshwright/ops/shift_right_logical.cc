#include "meshwright/ops/shift_right_logical.h"

#include "meshwright/ops/constant.h"
#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def()
      : ElementwiseOp("shift_right_logical", "stablehlo.shift_right_logical", 2,
                      ElementClass::kInteger) {}
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
};

}  // namespace

const OpDef& ShiftRightLogicalOp() {
  static const Def* const def = new Def();
  return *def;
}

Value ShiftRightLogical(Value a, Value b) { return graph::Apply(ShiftRightLogicalOp(), {a, b}); }

Value ShiftRightLogical(Value a, double b) { return ShiftRightLogical(a, FullLike(a, b)); }

}  // namespace mw::ops
