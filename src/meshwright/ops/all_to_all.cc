#include "meshwright/ops/all_to_all.h"

#include <fmt/format.h>

namespace mw::ops {
namespace {

class Def final : public CollectiveOp {
 public:
  Def() : CollectiveOp("all_to_all") {}

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckGroups(node);
    const int64_t split = node.attrs().Int("split_dim");
    const int64_t concat = node.attrs().Int("concat_dim");
    const int64_t size = node.attrs().Int("group_size");
    CheckDim(node, split, size);
    CheckDim(node, concat, 1);
    TensorType type(node.operand(0).dtype(), node.operand(0).dims());
    type.dims[split] /= size;
    type.dims[concat] *= size;
    return {type};
  }

  void Lower(LowerContext& ctx) const override {
    const Attributes& attrs = ctx.node().attrs();
    Emit(
        ctx, "stablehlo.all_to_all",
        fmt::format("{}, concat_dimension = {} : i64, split_count = {} : i64, split_dimension = {} "
                    ": i64",
                    GroupAttributes(ctx, /*global_ids=*/false), attrs.Int("concat_dim"),
                    attrs.Int("group_size"), attrs.Int("split_dim")));
  }
};

}  // namespace

const OpDef& AllToAllOp() {
  static const Def* const def = new Def();
  return *def;
}

Value AllToAll(Value x, int64_t split_dim, int64_t concat_dim, const CollectiveGroups& groups) {
  Attributes attrs = {{"split_dim", split_dim}, {"concat_dim", concat_dim}};
  SetGroups(attrs, groups);
  return graph::Apply(AllToAllOp(), {x}, std::move(attrs));
}

}  // namespace mw::ops
