#include "meshwright/ops/all_reduce.h"

#include <fmt/format.h>

namespace mw::ops {
namespace {

class Def final : public CollectiveOp {
 public:
  Def() : CollectiveOp("all_reduce") {}

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckGroups(node);
    const std::string& kind = node.attrs().String("kind");
    for (const char* known : {"add", "max", "min", "mul", "and", "or"}) {
      if (kind == known) return {node.operand(0).type()};
    }
    node.Fail(fmt::format("kind {} is not add, max, min, mul, and or or", kind));
  }

  void Lower(LowerContext& ctx) const override {
    const std::string attributes = GroupAttributes(ctx);
    Emit(ctx, "stablehlo.all_reduce", attributes,
         CombineRegion(ctx, ctx.node().attrs().String("kind")));
  }
};

}  // namespace

const OpDef& AllReduceOp() {
  static const Def* const def = new Def();
  return *def;
}

Value AllReduce(Value x, const CollectiveGroups& groups, const std::string& kind) {
  Attributes attrs = {{"kind", kind}};
  SetGroups(attrs, groups);
  return graph::Apply(AllReduceOp(), {x}, std::move(attrs));
}

}  // namespace mw::ops
