#include "meshwright/ops/materialize.h"

#include "meshwright/ops/optimization_barrier.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "materialize"; }
  std::vector<TensorType> InferTypes(const Node& node) const override {
    return {TensorType(node.operand(0).dtype(), node.operand(0).dims())};
  }
  ShardingRule Sharding(const Node&) const override { return ShardingRule::Elementwise().Sum({0}); }
  bool cheap_to_recompute() const override { return true; }
  void Vjp(VjpContext& ctx) const override { ctx.Add(0, Materialize(ctx.ct())); }
  void Lower(LowerContext& ctx) const override {
    if (ctx.target().platform != "tpu") return ctx.Set(0, ctx.operand(0));
    LowerAsBarrier(ctx);
  }
};

}  // namespace

const OpDef& MaterializeOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Materialize(Value x) { return graph::Apply(MaterializeOp(), {x}); }

}  // namespace mw::ops
