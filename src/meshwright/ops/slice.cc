#include "meshwright/ops/slice.h"

#include <fmt/format.h>

#include <algorithm>

#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/pad.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "slice"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const std::vector<int64_t>& starts = node.attrs().Ints("starts");
    const std::vector<int64_t>& limits = node.attrs().Ints("limits");
    const std::vector<int64_t>& strides = node.attrs().Ints("strides");
    const std::string asked = fmt::format("starts {} limits {} strides {}", DimsToString(starts),
                                          DimsToString(limits), DimsToString(strides));
    const size_t rank = x.dims.size();
    if (starts.size() != rank || limits.size() != rank || strides.size() != rank) {
      node.Fail(fmt::format("{} need one entry for each dim of {}", asked, x.ToString()));
    }
    Dims dims;
    for (size_t d = 0; d < rank; ++d) {
      if (starts[d] < 0 || limits[d] < starts[d] || limits[d] > x.dims[d] || strides[d] < 1) {
        node.Fail(
            fmt::format("{} do not fit {}: dim {} needs 0 <= start <= limit <= {} and "
                        "stride >= 1",
                        asked, x.ToString(), d, x.dims[d]));
      }
      const int64_t span = limits[d] - starts[d];
      dims.push_back(span / strides[d] + (span % strides[d] != 0 ? 1 : 0));
    }
    return {TensorType(x.dtype, std::move(dims))};
  }

  ShardingRule Sharding(const Node& node) const override {
    const std::string letters = FactorLetters(node.operand(0).rank());
    ShardingRule rule = ShardingRule::Factors({letters}, {letters});
    for (int d = 0; d < node.operand(0).rank(); ++d) {
      if (node.types()[0].dims[d] != node.operand(0).dims()[d]) rule.whole += letters[d];
    }
    return std::move(rule).Sum({0});
  }

  Attributes LocalAttributes(const Node& node, const std::vector<Dims>& local) const override {
    Attributes attrs = node.attrs();
    std::vector<int64_t> limits = attrs.Ints("limits");
    for (size_t d = 0; d < limits.size(); ++d) {
      if (local[0][d] != node.types()[0].dims[d]) limits[d] = local[0][d];  // taken whole
    }
    attrs.Set("limits", std::move(limits));
    return attrs;
  }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    const Node& node = ctx.node();
    const Dims& from = node.operand(0).dims();
    const Dims& to = node.types()[0].dims;
    const std::vector<int64_t>& starts = node.attrs().Ints("starts");
    const std::vector<int64_t>& strides = node.attrs().Ints("strides");
    std::vector<int64_t> high, interior;
    for (size_t d = 0; d < from.size(); ++d) {
      const int64_t covered = to[d] == 0 ? 0 : (to[d] - 1) * strides[d] + 1;
      high.push_back(from[d] - starts[d] - covered);
      interior.push_back(strides[d] - 1);
    }
    const Value zero = Full(ctx.graph(), ctx.ct().dtype(), {}, 0.0);
    ctx.Add(0, Pad(ctx.ct(), zero, starts, high, interior));
  }

  void Lower(LowerContext& ctx) const override {
    const Attributes& attrs = ctx.node().attrs();
    ctx.EmitGeneric("stablehlo.slice",
                    fmt::format("<{{limit_indices = {}, start_indices = {}, strides = {}}}>",
                                stablehlo::I64Array(attrs.Ints("limits")),
                                stablehlo::I64Array(attrs.Ints("starts")),
                                stablehlo::I64Array(attrs.Ints("strides"))));
  }
};

}  // namespace

const OpDef& SliceOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Slice(Value x, const std::vector<int64_t>& starts, const std::vector<int64_t>& limits,
            const std::vector<int64_t>& strides) {
  const std::vector<int64_t> ones(static_cast<size_t>(x.rank()), 1);
  const std::vector<int64_t>& steps = strides.empty() ? ones : strides;
  const std::vector<int64_t> zeros(static_cast<size_t>(x.rank()), 0);
  if (starts == zeros && limits == x.dims() && steps == ones) return x;
  return graph::Apply(SliceOp(), {x}, {{"starts", starts}, {"limits", limits}, {"strides", steps}});
}

Value SliceInDim(Value x, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  const int64_t d = FromFront(dim, x.rank());
  if (d < 0 || d >= x.rank()) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "slice",
                     fmt::format("dim {} is out of range for {}", dim, x.type().ToString()),
                     x.graph().scope());
  }
  std::vector<int64_t> starts(static_cast<size_t>(x.rank()), 0);
  std::vector<int64_t> limits = x.dims();
  std::vector<int64_t> strides(static_cast<size_t>(x.rank()), 1);
  starts[d] = start;
  limits[d] = limit;
  strides[d] = stride;
  return Slice(x, starts, limits, strides);
}

}  // namespace mw::ops
