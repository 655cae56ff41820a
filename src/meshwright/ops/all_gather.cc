#include "meshwright/ops/all_gather.h"

#include <fmt/format.h>

namespace mw::ops {
namespace {

class Def final : public CollectiveOp {
 public:
  Def() : CollectiveOp("all_gather") {}

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckGroups(node);
    const int64_t dim = node.attrs().Int("dim");
    CheckDim(node, dim, 1);
    TensorType type(node.operand(0).dtype(), node.operand(0).dims());
    type.dims[dim] *= node.attrs().Int("group_size");
    return {type};
  }

  void Lower(LowerContext& ctx) const override {
    Emit(ctx, "stablehlo.all_gather",
         fmt::format("all_gather_dim = {} : i64, {}", ctx.node().attrs().Int("dim"),
                     GroupAttributes(ctx)));
  }
};

}  // namespace

const OpDef& AllGatherOp() {
  static const Def* const def = new Def();
  return *def;
}

Value AllGather(Value x, int64_t dim, const CollectiveGroups& groups) {
  Attributes attrs = {{"dim", dim}};
  SetGroups(attrs, groups);
  return graph::Apply(AllGatherOp(), {x}, std::move(attrs));
}

}  // namespace mw::ops
