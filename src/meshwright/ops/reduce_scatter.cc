#include "meshwright/ops/reduce_scatter.h"

#include <fmt/format.h>

namespace mw::ops {
namespace {

class Def final : public CollectiveOp {
 public:
  Def() : CollectiveOp("reduce_scatter") {}

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckGroups(node);
    const int64_t dim = node.attrs().Int("dim");
    const int64_t size = node.attrs().Int("group_size");
    CheckDim(node, dim, size);
    TensorType type(node.operand(0).dtype(), node.operand(0).dims());
    type.dims[dim] /= size;
    return {type};
  }

  void Lower(LowerContext& ctx) const override {
    const std::string attributes = fmt::format("{}, scatter_dimension = {} : i64",
                                               GroupAttributes(ctx), ctx.node().attrs().Int("dim"));
    Emit(ctx, "stablehlo.reduce_scatter", attributes, CombineRegion(ctx, "add"));
  }
};

}  // namespace

const OpDef& ReduceScatterOp() {
  static const Def* const def = new Def();
  return *def;
}

Value ReduceScatter(Value x, int64_t dim, const CollectiveGroups& groups) {
  Attributes attrs = {{"dim", dim}};
  SetGroups(attrs, groups);
  return graph::Apply(ReduceScatterOp(), {x}, std::move(attrs));
}

}  // namespace mw::ops
