#include "meshwright/ops/convert.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "convert"; }
  std::vector<TensorType> InferTypes(const Node& node) const override {
    return {TensorType(node.attrs().Get<DType>("dtype"), node.operand(0).dims())};
  }
  // Widened parts add up to the widened sum, and more exactly; narrowed ones do not.
  ShardingRule Sharding(const Node& node) const override {
    const DType from = node.operand(0).dtype();
    const DType to = node.attrs().Get<DType>("dtype");
    if (IsFloat(from) && IsFloat(to) && ByteSize(to) >= ByteSize(from)) {
      return ShardingRule::Elementwise().Sum({0});
    }
    return ShardingRule::Elementwise();
  }
  bool cheap_to_recompute() const override { return true; }
  void Vjp(VjpContext& ctx) const override {
    // No gradient flows through integers.
    if (IsFloat(ctx.node().operand(0).dtype()) && IsFloat(ctx.node().types()[0].dtype)) {
      ctx.Add(0, Convert(ctx.ct(), ctx.node().operand(0).dtype()));
    }
  }
  void Lower(LowerContext& ctx) const override { ctx.EmitGeneric("stablehlo.convert"); }
};

}  // namespace

const OpDef& ConvertOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Convert(Value x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return graph::Apply(ConvertOp(), {x}, {{"dtype", dtype}});
}

}  // namespace mw::ops
