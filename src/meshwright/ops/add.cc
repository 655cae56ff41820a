#include "meshwright/ops/add.h"

#include "meshwright/ops/constant.h"
#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public ElementwiseOp {
 public:
  Def() : ElementwiseOp("add", "stablehlo.add", 2, ElementClass::kNumber) {}
  ShardingRule Sharding(const Node&) const override {
    return ShardingRule::Elementwise().Sum({0, 1});
  }
  void Vjp(VjpContext& ctx) const override {
    if (ctx.wants(0)) ctx.Add(0, ctx.ct());
    if (ctx.wants(1)) ctx.Add(1, ctx.ct());
  }
};

}  // namespace

const OpDef& AddOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Add(Value a, Value b) { return graph::Apply(AddOp(), {a, b}); }

Value Add(Value a, double b) { return Add(a, FullLike(a, b)); }

}  // namespace mw::ops
