#include "meshwright/ops/concatenate.h"

#include <fmt/format.h>

#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/slice.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "concatenate"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& first = node.operand(0).type();
    const int64_t dim = node.attrs().Int("dim");
    if (dim < 0 || dim >= first.rank()) {
      node.Fail(fmt::format("dim {} is out of range for {}", dim, first.ToString()));
    }
    Dims dims = first.dims;
    for (int i = 1; i < node.num_operands(); ++i) {
      const TensorType& type = node.operand(i).type();
      Dims expected = first.dims;
      if (type.rank() == first.rank()) expected[dim] = type.dims[dim];
      if (type.dtype != first.dtype || type.dims != expected) {
        node.Fail(
            fmt::format("operand {} is {} but operand 0 is {}: they may differ in dim {} "
                        "only",
                        i, type.ToString(), first.ToString(), dim));
      }
      dims[dim] += type.dims[dim];
    }
    return {TensorType(first.dtype, std::move(dims))};
  }

  ShardingRule Sharding(const Node& node) const override {
    const std::string letters = FactorLetters(node.operand(0).rank());
    ShardingRule rule = ShardingRule::Factors(
        std::vector<std::string>(static_cast<size_t>(node.num_operands()), letters), {letters});
    rule.whole = letters[node.attrs().Int("dim")];
    std::vector<int> all;
    for (int i = 0; i < node.num_operands(); ++i) all.push_back(i);
    return std::move(rule).Sum(std::move(all));
  }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    const Node& node = ctx.node();
    const int64_t dim = node.attrs().Int("dim");
    int64_t start = 0;
    for (int i = 0; i < node.num_operands(); ++i) {
      const int64_t limit = start + node.operand(i).dims()[dim];
      if (ctx.wants(i)) ctx.Add(i, SliceInDim(ctx.ct(), dim, start, limit));
      start = limit;
    }
  }

  void Lower(LowerContext& ctx) const override {
    ctx.EmitGeneric("stablehlo.concatenate",
                    fmt::format("<{{dimension = {} : i64}}>", ctx.node().attrs().Int("dim")));
  }
};

}  // namespace

const OpDef& ConcatenateOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Concatenate(const std::vector<Value>& values, int64_t dim) {
  if (values.empty()) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "concatenate",
                     "no values were given; at least one is needed");
  }
  const int64_t d = FromFront(dim, values[0].rank());
  if (values.size() == 1 && d >= 0 && d < values[0].rank()) return values[0];
  return graph::Apply(ConcatenateOp(), values, {{"dim", d}});
}

}  // namespace mw::ops
