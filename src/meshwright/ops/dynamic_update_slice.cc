#include "meshwright/ops/dynamic_update_slice.h"

#include <fmt/format.h>

#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/dynamic_slice.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "dynamic_update_slice"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const TensorType& update = node.operand(1).type();
    CheckStarts(node, /*first=*/2);
    bool fits = update.dtype == x.dtype && update.rank() == x.rank();
    for (int i = 0; fits && i < x.rank(); ++i) fits = update.dims[i] <= x.dims[i];
    if (!fits) {
      node.Fail(
          fmt::format("update {} does not fit into {}: it needs the same dtype and rank and "
                      "no larger dims",
                      update.ToString(), x.ToString()));
    }
    return {TensorType(x.dtype, x.dims)};
  }

  ShardingRule Sharding(const Node& node) const override {
    const Dims& dims = node.operand(0).dims();
    const std::string letters = FactorLetters(node.operand(0).rank());
    ShardingRule rule = ShardingRule::Factors({letters, letters}, {letters});
    rule.operands.resize(static_cast<size_t>(node.num_operands()));
    for (size_t i = 0; i < dims.size(); ++i) {
      if (node.operand(1).dims()[i] != dims[i]) rule.whole += letters[i];
    }
    return std::move(rule).Sum({0, 1});
  }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    const TensorType& update = ctx.node().operand(1).type();
    std::vector<Value> starts;
    for (int i = 2; i < ctx.node().num_operands(); ++i) starts.push_back(ctx.operand(i));
    if (ctx.wants(0)) {
      const Value zeros = Full(ctx.graph(), update.dtype, update.dims, 0);
      ctx.Add(0, DynamicUpdateSlice(ctx.ct(), zeros, starts));
    }
    if (ctx.wants(1)) ctx.Add(1, DynamicSlice(ctx.ct(), starts, update.dims));
  }

  void Lower(LowerContext& ctx) const override {
    ctx.EmitGeneric("stablehlo.dynamic_update_slice");
  }
};

}  // namespace

const OpDef& DynamicUpdateSliceOp() {
  static const Def* const def = new Def();
  return *def;
}

Value DynamicUpdateSlice(Value x, Value update, const std::vector<Value>& starts) {
  std::vector<Value> operands = {x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return graph::Apply(DynamicUpdateSliceOp(), operands);
}

Value DynamicUpdateSliceInDim(Value x, Value update, Value start, int64_t dim) {
  return DynamicUpdateSlice(x, update, StartsInDim(x, start, FromFront(dim, x.rank())));
}

}  // namespace mw::ops
