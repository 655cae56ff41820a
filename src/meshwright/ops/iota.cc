#include "meshwright/ops/iota.h"

#include <fmt/format.h>

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "iota"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const DType dtype = node.attrs().Get<DType>("dtype");
    const Dims& dims = node.attrs().Ints("dims");
    const int64_t dim = node.attrs().Int("dim");
    if (dtype == DType::kPred) {
      node.Fail("the dtype is pred but the op counts in an integer or float type");
    }
    for (int64_t d : dims) {
      if (d < 0) node.Fail(fmt::format("dims {} hold a negative size", DimsToString(dims)));
    }
    if (dim < 0 || dim >= static_cast<int64_t>(dims.size())) {
      node.Fail(fmt::format("dim {} is out of range for dims {}", dim, DimsToString(dims)));
    }
    return {TensorType(dtype, dims)};
  }

  ShardingRule Sharding(const Node&) const override { return ShardingRule::Creation(); }
  Attributes LocalAttributes(const Node& node, const std::vector<Dims>& local) const override {
    Attributes attrs = node.attrs();
    attrs.Set("dims", local[0]);
    return attrs;
  }
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
  bool cheap_to_recompute() const override { return true; }

  void Lower(LowerContext& ctx) const override {
    ctx.EmitGeneric("stablehlo.iota",
                    fmt::format("<{{iota_dimension = {} : i64}}>", ctx.node().attrs().Int("dim")));
  }
};

}  // namespace

const OpDef& IotaOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Iota(Graph& graph, DType dtype, Dims dims, int64_t dim) {
  return graph.AddNode(IotaOp(), {}, {{"dtype", dtype}, {"dims", std::move(dims)}, {"dim", dim}})
      ->result();
}

}  // namespace mw::ops
