#include "meshwright/ops/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "meshwright/ops/constant.h"
#include "meshwright/ops/elementwise.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "compare"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    static constexpr std::array<std::string_view, 6> kDirections = {"EQ", "NE", "LT",
                                                                    "LE", "GT", "GE"};
    const std::string& direction = node.attrs().String("direction");
    if (std::find(kDirections.begin(), kDirections.end(), direction) == kDirections.end()) {
      node.Fail(fmt::format("direction \"{}\" is none of EQ, NE, LT, LE, GT, GE", direction));
    }
    CheckSameType(node, 0, 1);
    return {TensorType(DType::kPred, node.operand(0).dims())};
  }

  ShardingRule Sharding(const Node&) const override { return ShardingRule::Elementwise(); }
  bool differentiable() const override { return false; }
  void Vjp(VjpContext&) const override {}
  bool cheap_to_recompute() const override { return true; }

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    const DType dtype = node.operand(0).dtype();
    const char* type = IsFloat(dtype) ? "FLOAT" : IsSigned(dtype) ? "SIGNED" : "UNSIGNED";
    ctx.EmitGeneric(
        "stablehlo.compare",
        fmt::format("<{{compare_type = #stablehlo<comparison_type {}>, comparison_direction = "
                    "#stablehlo<comparison_direction {}>}}>",
                    type, node.attrs().String("direction")));
  }
};

}  // namespace

const OpDef& CompareOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Compare(Value a, Value b, const std::string& direction) {
  return graph::Apply(CompareOp(), {a, b}, {{"direction", direction}});
}

Value Equal(Value a, Value b) { return Compare(a, b, "EQ"); }
Value NotEqual(Value a, Value b) { return Compare(a, b, "NE"); }
Value Less(Value a, Value b) { return Compare(a, b, "LT"); }
Value LessEqual(Value a, Value b) { return Compare(a, b, "LE"); }
Value Greater(Value a, Value b) { return Compare(a, b, "GT"); }
Value GreaterEqual(Value a, Value b) { return Compare(a, b, "GE"); }

Value Equal(Value a, double b) { return Equal(a, FullLike(a, b)); }
Value NotEqual(Value a, double b) { return NotEqual(a, FullLike(a, b)); }
Value Less(Value a, double b) { return Less(a, FullLike(a, b)); }
Value LessEqual(Value a, double b) { return LessEqual(a, FullLike(a, b)); }
Value Greater(Value a, double b) { return Greater(a, FullLike(a, b)); }
Value GreaterEqual(Value a, double b) { return GreaterEqual(a, FullLike(a, b)); }

}  // namespace mw::ops
