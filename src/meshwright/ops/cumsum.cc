#include "meshwright/ops/cumsum.h"

#include <fmt/format.h>

#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "cumsum"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kNumber);
    CheckDim(node, node.attrs().Int("dim"));
    return {TensorType(node.operand(0).dtype(), node.operand(0).dims())};
  }

  ShardingRule Sharding(const Node& node) const override {
    const std::string letters = FactorLetters(node.operand(0).rank());
    ShardingRule rule = ShardingRule::Factors({letters}, {letters});
    rule.whole = letters[node.attrs().Int("dim")];
    return std::move(rule).Sum({0});
  }

  void Vjp(VjpContext& ctx) const override {
    const Attributes& attrs = ctx.node().attrs();
    ctx.Add(0, Cumsum(ctx.ct(), attrs.Int("dim"),
                      {.reverse = !attrs.Bool("reverse"), .exclusive = attrs.Bool("exclusive")}));
  }

  // y_0 = x and y_{k+1}[i] = y_k[i] + y_k[i - 2^k]. A reduce_window would say it in
  // one statement, but XLA's CPU backend runs that in quadratic time.
  void Lower(LowerContext& ctx) const override {
    const TensorType& x = ctx.node().operand(0).type();
    const int64_t dim = ctx.node().attrs().Int("dim");
    const std::string zero = ctx.writer().Splat(x.dtype, {}, 0);
    std::string sum = ctx.operand(0);
    if (ctx.node().attrs().Bool("exclusive")) sum = Shifted(ctx, sum, zero, 1);
    for (int64_t step = 1; step < x.dims[dim]; step *= 2) {
      const std::string earlier = Shifted(ctx, sum, zero, step);
      sum = ctx.writer().Assign(
          fmt::format("stablehlo.add {}, {} : {}", sum, earlier, stablehlo::TypeText(x)));
    }
    ctx.Set(0, sum);
  }

 private:
  // `name` moved by `step` along the dim, away from where the sums start; zeros
  // move in.
  static std::string Shifted(LowerContext& ctx, const std::string& name, const std::string& zero,
                             int64_t step) {
    const TensorType& x = ctx.node().operand(0).type();
    const int64_t dim = ctx.node().attrs().Int("dim");
    const int64_t low = ctx.node().attrs().Bool("reverse") ? -step : step;
    const std::vector<int64_t> none(x.dims.size(), 0);
    std::vector<int64_t> before = none;
    std::vector<int64_t> after = none;
    before[dim] = low;
    after[dim] = -low;
    return ctx.writer().Assign(fmt::format(
        "stablehlo.pad {}, {}, low = {}, high = {}, interior = {} : ({}, {}) -> {}", name, zero,
        stablehlo::IntList(before), stablehlo::IntList(after), stablehlo::IntList(none),
        stablehlo::TypeText(x), stablehlo::TypeText(x.dtype, {}), stablehlo::TypeText(x)));
  }
};

}  // namespace

const OpDef& CumsumOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Cumsum(Value x, int64_t dim, CumsumOptions options) {
  return graph::Apply(CumsumOp(), {x},
                      {{"dim", FromFront(dim, x.rank())},
                       {"reverse", options.reverse},
                       {"exclusive", options.exclusive}});
}

}  // namespace mw::ops
