#include "meshwright/ops/reverse.h"

#include <fmt/format.h>

#include "meshwright/ops/dims_util.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "reverse"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const std::vector<int64_t>& dims = node.attrs().Ints("dims");
    std::vector<bool> seen(x.dims.size());
    for (int64_t d : dims) {
      if (d < 0 || d >= x.rank() || seen[d]) {
        node.Fail(
            fmt::format("dims {} are not distinct dims of {}", DimsToString(dims), x.ToString()));
      }
      seen[d] = true;
    }
    return {TensorType(x.dtype, x.dims)};
  }

  ShardingRule Sharding(const Node& node) const override {
    const std::string letters = FactorLetters(node.operand(0).rank());
    ShardingRule rule = ShardingRule::Factors({letters}, {letters});
    for (int64_t d : node.attrs().Ints("dims")) rule.whole += letters[d];
    return std::move(rule).Sum({0});
  }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    ctx.Add(0, Reverse(ctx.ct(), ctx.node().attrs().Ints("dims")));
  }

  void Lower(LowerContext& ctx) const override {
    ctx.EmitGeneric(
        "stablehlo.reverse",
        fmt::format("<{{dimensions = {}}}>", stablehlo::I64Array(ctx.node().attrs().Ints("dims"))));
  }
};

}  // namespace

const OpDef& ReverseOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Reverse(Value x, const std::vector<int64_t>& dims) {
  if (dims.empty()) return x;
  return graph::Apply(ReverseOp(), {x}, {{"dims", dims}});
}

}  // namespace mw::ops
