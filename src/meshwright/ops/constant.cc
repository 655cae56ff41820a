#include "meshwright/ops/constant.h"

#include <fmt/format.h>

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "constant"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const Dims& dims = node.attrs().Ints("dims");
    const size_t count = node.attrs().Get<std::vector<double>>("values").size();
    for (int64_t d : dims) {
      if (d < 0) node.Fail(fmt::format("dims {} hold a negative size", DimsToString(dims)));
    }
    if (count != 1 && static_cast<int64_t>(count) != NumElements(dims)) {
      node.Fail(fmt::format("{} values for dims {} ({} elements); give one value or all of them",
                            count, DimsToString(dims), NumElements(dims)));
    }
    return {TensorType(node.attrs().Get<DType>("dtype"), dims)};
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
    const TensorType& type = ctx.node().types()[0];
    const auto& values = ctx.node().attrs().Get<std::vector<double>>("values");
    if (values.size() == 1) {
      ctx.Set(0, ctx.writer().Splat(type.dtype, type.dims, values[0]));
      return;
    }
    size_t next = 0;
    ctx.Set(0, ctx.writer().Assign(fmt::format("stablehlo.constant dense<{}> : {}",
                                               Literal(type, 0, values, &next),
                                               stablehlo::TypeText(type))));
  }

 private:
  static std::string Literal(const TensorType& type, int dim, const std::vector<double>& values,
                             size_t* next) {
    if (dim == type.rank()) return stablehlo::ScalarLiteral(type.dtype, values[(*next)++]);
    std::string text = "[";
    for (int64_t i = 0; i < type.dims[dim]; ++i) {
      if (i > 0) text += ", ";
      text += Literal(type, dim + 1, values, next);
    }
    return text + "]";
  }
};

}  // namespace

const OpDef& ConstantOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Constant(Graph& graph, DType dtype, Dims dims, std::vector<double> values) {
  return graph
      .AddNode(ConstantOp(), {},
               {{"dtype", dtype}, {"dims", std::move(dims)}, {"values", std::move(values)}})
      ->result();
}

Value Full(Graph& graph, DType dtype, Dims dims, double value) {
  return Constant(graph, dtype, std::move(dims), {value});
}

Value FullLike(Value like, double value) {
  return Full(like.graph(), like.dtype(), like.dims(), value);
}

}  // namespace mw::ops
