#include "meshwright/ops/transpose.h"

#include <fmt/format.h>

#include <numeric>

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "transpose"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const std::vector<int64_t>& permutation = node.attrs().Ints("permutation");
    std::vector<bool> seen(x.dims.size());
    Dims dims;
    for (int64_t p : permutation) {
      if (p < 0 || p >= x.rank() || seen[p]) dims.clear();
      if (p < 0 || p >= x.rank() || seen[p]) break;
      seen[p] = true;
      dims.push_back(x.dims[p]);
    }
    if (dims.size() != x.dims.size() || permutation.size() != x.dims.size()) {
      node.Fail(fmt::format("{} is not a permutation of the dims of {}", DimsToString(permutation),
                            x.ToString()));
    }
    return {TensorType(x.dtype, std::move(dims))};
  }

  ShardingRule Sharding(const Node& node) const override {
    ShardingRule rule = ShardingRule::Of(ShardingRule::Kind::kFactors);
    std::string letters, out;
    for (int i = 0; i < node.operand(0).rank(); ++i) letters += static_cast<char>('a' + i);
    for (int64_t p : node.attrs().Ints("permutation")) out += letters[p];
    rule.operands = {letters};
    rule.results = {out};
    return std::move(rule).Sum({0});
  }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    const std::vector<int64_t>& permutation = ctx.node().attrs().Ints("permutation");
    std::vector<int64_t> inverse(permutation.size());
    for (size_t i = 0; i < permutation.size(); ++i) {
      inverse[permutation[i]] = static_cast<int64_t>(i);
    }
    ctx.Add(0, Transpose(ctx.ct(), inverse));
  }

  void Lower(LowerContext& ctx) const override {
    ctx.EmitGeneric("stablehlo.transpose",
                    fmt::format("<{{permutation = {}}}>",
                                stablehlo::I64Array(ctx.node().attrs().Ints("permutation"))));
  }
};

}  // namespace

const OpDef& TransposeOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Transpose(Value x, const std::vector<int64_t>& permutation) {
  std::vector<int64_t> identity(static_cast<size_t>(x.rank()));
  std::iota(identity.begin(), identity.end(), 0);
  if (permutation == identity) return x;
  return graph::Apply(TransposeOp(), {x}, {{"permutation", permutation}});
}

}  // namespace mw::ops
