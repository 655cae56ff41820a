#include "meshwright/ops/dynamic_slice.h"

#include <fmt/format.h>

#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/dynamic_update_slice.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "dynamic_slice"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const Dims& sizes = node.attrs().Ints("sizes");
    CheckStarts(node, /*first=*/1);
    if (sizes.size() != x.dims.size()) {
      node.Fail(fmt::format("{} sizes {} for {}; give one per dim", sizes.size(),
                            DimsToString(sizes), x.ToString()));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < 0 || sizes[i] > x.dims[i]) {
        node.Fail(fmt::format("size {} of dim {} does not fit {}; it may be 0 … {}", sizes[i], i,
                              x.ToString(), x.dims[i]));
      }
    }
    return {TensorType(x.dtype, sizes)};
  }

  ShardingRule Sharding(const Node& node) const override {
    const Dims& dims = node.operand(0).dims();
    const std::string letters = FactorLetters(node.operand(0).rank());
    ShardingRule rule = ShardingRule::Factors({letters}, {letters});
    rule.operands.resize(static_cast<size_t>(node.num_operands()));
    for (size_t i = 0; i < dims.size(); ++i) {
      if (node.attrs().Ints("sizes")[i] != dims[i]) rule.whole += letters[i];
    }
    return std::move(rule).Sum({0});
  }

  Attributes LocalAttributes(const Node& node, const std::vector<Dims>& local) const override {
    Attributes attrs = node.attrs();
    attrs.Set("sizes", local[0]);
    return attrs;
  }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    const TensorType& x = ctx.node().operand(0).type();
    std::vector<Value> starts;
    for (int i = 1; i < ctx.node().num_operands(); ++i) starts.push_back(ctx.operand(i));
    ctx.Add(0, DynamicUpdateSlice(Full(ctx.graph(), x.dtype, x.dims, 0), ctx.ct(), starts));
  }

  void Lower(LowerContext& ctx) const override {
    ctx.EmitGeneric("stablehlo.dynamic_slice",
                    fmt::format("<{{slice_sizes = {}}}>",
                                stablehlo::I64Array(ctx.node().attrs().Ints("sizes"))));
  }
};

}  // namespace

const OpDef& DynamicSliceOp() {
  static const Def* const def = new Def();
  return *def;
}

Value DynamicSlice(Value x, const std::vector<Value>& starts, Dims sizes) {
  std::vector<Value> operands = {x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return graph::Apply(DynamicSliceOp(), operands, {{"sizes", std::move(sizes)}});
}

Value DynamicSliceInDim(Value x, Value start, int64_t size, int64_t dim) {
  dim = FromFront(dim, x.rank());
  const std::vector<Value> starts = StartsInDim(x, start, dim);
  Dims sizes = x.dims();
  sizes[dim] = size;
  return DynamicSlice(x, starts, std::move(sizes));
}

}  // namespace mw::ops
