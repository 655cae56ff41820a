#include "meshwright/ops/broadcast_in_dim.h"

#include <fmt/format.h>

#include <algorithm>

#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reshape.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "broadcast_in_dim"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const Dims& dims = node.attrs().Ints("dims");
    const std::vector<int64_t>& map = node.attrs().Ints("broadcast_dimensions");
    const int64_t rank = static_cast<int64_t>(dims.size());
    for (int64_t d : dims) {
      if (d < 0) node.Fail(fmt::format("dims {} hold a negative size", DimsToString(dims)));
    }
    if (map.size() != x.dims.size()) {
      node.Fail(fmt::format("broadcast_dimensions {} need one entry for each dim of {}",
                            DimsToString(map), x.ToString()));
    }
    for (size_t i = 0; i < map.size(); ++i) {
      if (map[i] < 0 || map[i] >= rank || (i > 0 && map[i] <= map[i - 1])) {
        node.Fail(fmt::format("broadcast_dimensions {} are not increasing dims of {}",
                              DimsToString(map), DimsToString(dims)));
      }
      if (x.dims[i] != 1 && x.dims[i] != dims[map[i]]) {
        node.Fail(fmt::format(
            "{} does not broadcast to {} along dims {}: dim {} has size {}, "
            "not 1 or {}",
            x.ToString(), DimsToString(dims), DimsToString(map), i, x.dims[i], dims[map[i]]));
      }
    }
    return {TensorType(x.dtype, dims)};
  }

  ShardingRule Sharding(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const TensorType& y = node.types()[0];
    const std::vector<int64_t>& map = node.attrs().Ints("broadcast_dimensions");
    const std::string out = FactorLetters(y.rank());
    std::string in;
    for (int i = 0; i < x.rank(); ++i) in += x.dims[i] == y.dims[map[i]] ? out[map[i]] : '1';
    return ShardingRule::Factors({in}, {out}).Sum({0});
  }

  Attributes LocalAttributes(const Node& node, const std::vector<Dims>& local) const override {
    Attributes attrs = node.attrs();
    attrs.Set("dims", local[0]);
    return attrs;
  }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    const Node& node = ctx.node();
    const TensorType& x = node.operand(0).type();
    const Dims& dims = node.types()[0].dims;
    const std::vector<int64_t>& map = node.attrs().Ints("broadcast_dimensions");
    std::vector<int64_t> summed;
    for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
      const auto it = std::find(map.begin(), map.end(), d);
      if (it == map.end() || x.dims[it - map.begin()] != dims[d]) summed.push_back(d);
    }
    ctx.Add(0, Reshape(summed.empty() ? ctx.ct() : ReduceSum(ctx.ct(), summed), x.dims));
  }

  void Lower(LowerContext& ctx) const override {
    ctx.EmitGeneric(
        "stablehlo.broadcast_in_dim",
        fmt::format("<{{broadcast_dimensions = {}}}>",
                    stablehlo::I64Array(ctx.node().attrs().Ints("broadcast_dimensions"))));
  }
};

}  // namespace

const OpDef& BroadcastInDimOp() {
  static const Def* const def = new Def();
  return *def;
}

Value BroadcastInDim(Value x, const Dims& dims, const std::vector<int64_t>& broadcast_dimensions) {
  if (x.dims() == dims && broadcast_dimensions == Sequence(x.rank())) return x;
  return graph::Apply(BroadcastInDimOp(), {x},
                      {{"dims", dims}, {"broadcast_dimensions", broadcast_dimensions}});
}

Value BroadcastTo(Value x, const Dims& dims) {
  const int64_t offset = static_cast<int64_t>(dims.size()) - x.rank();
  if (offset < 0) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "broadcast_in_dim",
                     fmt::format("{} has more dims than {}; a broadcast only adds dims",
                                 x.type().ToString(), DimsToString(dims)),
                     x.graph().scope());
  }
  return BroadcastInDim(x, dims, Sequence(x.rank(), offset));
}

Value BroadcastLike(Value x, Value like) { return BroadcastTo(x, like.dims()); }

}  // namespace mw::ops
