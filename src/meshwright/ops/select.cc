#include "meshwright/ops/select.h"

#include <fmt/format.h>

#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "select"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kPred);
    CheckSameType(node, 1, 2);
    const TensorType& pred = node.operand(0).type();
    const TensorType& value = node.operand(1).type();
    if (pred.rank() != 0 && pred.dims != value.dims) {
      node.Fail(fmt::format("pred is {} but the values are {}: pred is a scalar or has their shape",
                            pred.ToString(), value.ToString()));
    }
    return {TensorType(value.dtype, value.dims)};
  }

  ShardingRule Sharding(const Node& node) const override {
    if (node.operand(0).rank() == node.operand(1).rank()) {
      return ShardingRule::Elementwise().Sum({1, 2});
    }
    const std::string letters = FactorLetters(node.operand(1).rank());
    return ShardingRule::Factors({"", letters, letters}, {letters}).Sum({1, 2});
  }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    const Value zero = FullLike(ctx.ct(), 0.0);
    if (ctx.wants(1)) ctx.Add(1, Select(ctx.operand(0), ctx.ct(), zero));
    if (ctx.wants(2)) ctx.Add(2, Select(ctx.operand(0), zero, ctx.ct()));
  }

  void Lower(LowerContext& ctx) const override { ctx.EmitGeneric("stablehlo.select"); }
};

}  // namespace

const OpDef& SelectOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Select(Value pred, Value on_true, Value on_false) {
  return graph::Apply(SelectOp(), {pred, on_true, on_false});
}

}  // namespace mw::ops
