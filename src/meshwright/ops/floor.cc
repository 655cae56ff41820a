#include "meshwright/ops/floor.h"

#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("floor", "stablehlo.floor", 1) {}
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
};

}  // namespace

const OpDef& FloorOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Floor(Value x) { return graph::Apply(FloorOp(), {x}); }

}  // namespace mw::ops
