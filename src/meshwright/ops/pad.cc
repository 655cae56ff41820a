#include "meshwright/ops/pad.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/sub.h"

namespace mw::ops {
namespace {

// Elements from the first to the last of n, spread by `interior`.
int64_t Span(int64_t n, int64_t interior) { return n == 0 ? 0 : n + (n - 1) * interior; }

// Larger paddings are refused, so that no size overflows.
constexpr int64_t kMaxPadding = int64_t{1} << 40;

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "pad"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const TensorType& value = node.operand(1).type();
    const std::vector<int64_t>& low = node.attrs().Ints("low");
    const std::vector<int64_t>& high = node.attrs().Ints("high");
    const std::vector<int64_t>& interior = node.attrs().Ints("interior");
    if (value.rank() != 0 || value.dtype != x.dtype) {
      node.Fail(fmt::format("the padding value is {} but {} needs a scalar of its dtype",
                            value.ToString(), x.ToString()));
    }
    const std::string asked = fmt::format("low {} high {} interior {}", DimsToString(low),
                                          DimsToString(high), DimsToString(interior));
    const size_t rank = x.dims.size();
    if (low.size() != rank || high.size() != rank || interior.size() != rank) {
      node.Fail(fmt::format("{} need one entry for each dim of {}", asked, x.ToString()));
    }
    Dims dims;
    for (size_t d = 0; d < rank; ++d) {
      const bool in_range = std::abs(low[d]) <= kMaxPadding && std::abs(high[d]) <= kMaxPadding &&
                            interior[d] >= 0 && interior[d] <= kMaxPadding / (x.dims[d] + 1);
      const int64_t size = in_range ? low[d] + high[d] + Span(x.dims[d], interior[d]) : -1;
      if (size < 0) {
        node.Fail(fmt::format("{} do not fit {}: dim {} needs interior >= 0 and a size >= 0", asked,
                              x.ToString(), d));
      }
      dims.push_back(size);
    }
    return {TensorType(x.dtype, std::move(dims))};
  }

  ShardingRule Sharding(const Node& node) const override {
    const std::string letters = FactorLetters(node.operand(0).rank());
    ShardingRule rule = ShardingRule::Factors({letters, ""}, {letters});
    const Attributes& attrs = node.attrs();
    for (size_t d = 0; d < letters.size(); ++d) {
      if (attrs.Ints("low")[d] != 0 || attrs.Ints("high")[d] != 0 ||
          attrs.Ints("interior")[d] != 0) {
        rule.whole += letters[d];
      }
    }
    return std::move(rule).Sum({0, 1});
  }

  bool cheap_to_recompute() const override { return true; }

  // The gradient of x is the strided slice that x went to; what was cut off gets
  // zeros. The value gets all the rest.
  void Vjp(VjpContext& ctx) const override {
    const Node& node = ctx.node();
    const Dims& dims = node.operand(0).dims();
    const std::vector<int64_t>& low = node.attrs().Ints("low");
    const std::vector<int64_t>& high = node.attrs().Ints("high");
    const std::vector<int64_t>& interior = node.attrs().Ints("interior");
    std::vector<int64_t> cut_low, cut_high, starts, limits, strides;
    for (size_t d = 0; d < dims.size(); ++d) {
      cut_low.push_back(std::max<int64_t>(-low[d], 0));
      cut_high.push_back(std::max<int64_t>(-high[d], 0));
      starts.push_back(std::max<int64_t>(low[d], 0));
      limits.push_back(starts[d] + Span(dims[d], interior[d]));
      strides.push_back(interior[d] + 1);
    }
    const Value gradient = Slice(Pad(ctx.ct(), 0.0, cut_low, cut_high), starts, limits, strides);
    ctx.Add(0, gradient);
    if (ctx.wants(1)) {
      const std::vector<int64_t> all = Sequence(node.operand(0).rank());
      if (all.empty()) return;
      ctx.Add(1, Sub(ReduceSum(ctx.ct(), all), ReduceSum(gradient, all)));
    }
  }

  void Lower(LowerContext& ctx) const override {
    const Attributes& attrs = ctx.node().attrs();
    ctx.EmitGeneric(
        "stablehlo.pad",
        fmt::format("<{{edge_padding_high = {}, edge_padding_low = {}, interior_padding = {}}}>",
                    stablehlo::I64Array(attrs.Ints("high")), stablehlo::I64Array(attrs.Ints("low")),
                    stablehlo::I64Array(attrs.Ints("interior"))));
  }
};

}  // namespace

const OpDef& PadOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Pad(Value x, Value value, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
          const std::vector<int64_t>& interior) {
  return graph::Apply(PadOp(), {x, value}, {{"low", low}, {"high", high}, {"interior", interior}});
}

Value Pad(Value x, double value, const std::vector<int64_t>& low,
          const std::vector<int64_t>& high) {
  const std::vector<int64_t> zeros(static_cast<size_t>(x.rank()), 0);
  if (low == zeros && high == zeros) return x;
  return Pad(x, Full(x.graph(), x.dtype(), {}, value), low, high, zeros);
}

}  // namespace mw::ops
