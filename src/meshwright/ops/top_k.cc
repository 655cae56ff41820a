#include "meshwright/ops/top_k.h"

#include <fmt/format.h>

#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/select.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "top_k"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const int64_t k = node.attrs().Int("k");
    if (!IsFloat(x.dtype) && x.dtype != DType::kS32) {
      node.Fail(fmt::format("operand is {}; convert it to a float type or s32", x.ToString()));
    }
    if (x.rank() == 0 || k < 1 || k > x.dims.back()) {
      node.Fail(fmt::format("k {} does not fit the last dim of {}; it is 1 … that size", k,
                            x.ToString()));
    }
    Dims dims = x.dims;
    dims.back() = k;
    return {TensorType(x.dtype, dims), TensorType(DType::kS32, dims)};
  }

  ShardingRule Sharding(const Node& node) const override {
    const std::string letters = FactorLetters(node.operand(0).rank());
    ShardingRule rule = ShardingRule::Factors({letters}, {letters, letters});
    rule.whole = letters.back();
    return rule;
  }

  void Vjp(VjpContext& ctx) const override {
    if (!ctx.cotangent(0)) return;
    const TensorType& x = ctx.node().operand(0).type();
    const int last = x.rank() - 1;
    Dims spread = x.dims;
    spread.insert(spread.begin() + last, ctx.node().attrs().Int("k"));
    const std::vector<int64_t> chosen_dims = Sequence(last + 1);
    const Value position = Iota(ctx.graph(), DType::kS32, spread, last + 1);
    const Value chosen = Equal(position, BroadcastInDim(ctx.result(1), spread, chosen_dims));
    const Value ct = BroadcastInDim(*ctx.cotangent(0), spread, chosen_dims);
    ctx.Add(0, ReduceSum(Select(chosen, ct, FullLike(ct, 0)), {last}));
  }

  void Lower(LowerContext& ctx) const override {
    const std::vector<TensorType>& types = ctx.node().types();
    const std::string values = ctx.writer().NewName();
    const std::string indices = ctx.writer().NewName();
    ctx.writer().Line(fmt::format("{}, {} = chlo.top_k({}, k = {}) : {} -> {}", values, indices,
                                  ctx.operand(0), ctx.node().attrs().Int("k"),
                                  stablehlo::TypeText(ctx.node().operand(0).type()),
                                  stablehlo::TypeList(types)));
    ctx.Set(0, values);
    ctx.Set(1, indices);
  }
};

}  // namespace

const OpDef& TopKOp() {
  static const Def* const def = new Def();
  return *def;
}

TopKResult TopK(Value x, int64_t k) {
  Node* node = x.graph().AddNode(TopKOp(), {x}, {{"k", k}});
  return {node->result(0), node->result(1)};
}

}  // namespace mw::ops
