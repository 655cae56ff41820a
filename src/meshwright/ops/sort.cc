#include "meshwright/ops/sort.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/iota.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "sort"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kNumber);
    CheckDim(node, node.attrs().Int("dim"));
    std::vector<TensorType> types;
    for (int i = 0; i < node.num_operands(); ++i) {
      const TensorType& type = node.operand(i).type();
      if (type.dims != node.operand(0).dims()) {
        node.Fail(fmt::format("operand {} is {} but the key is {}; all have one shape", i,
                              type.ToString(), node.operand(0).type().ToString()));
      }
      types.emplace_back(type.dtype, type.dims);
    }
    return types;
  }

  ShardingRule Sharding(const Node& node) const override {
    const std::string letters = FactorLetters(node.operand(0).rank());
    const std::vector<std::string> all(static_cast<size_t>(node.num_operands()), letters);
    ShardingRule rule = ShardingRule::Factors(all, all);
    rule.whole = letters[node.attrs().Int("dim")];
    return rule;
  }

  // Sorting the cotangents by the permutation itself undoes it, without a scatter.
  void Vjp(VjpContext& ctx) const override {
    const int64_t dim = ctx.node().attrs().Int("dim");
    std::vector<Value> moved = {
        ArgSort(ctx.operand(0), dim, ctx.node().attrs().Bool("descending"))};
    std::vector<int> operands;
    for (int i = 0; i < ctx.node().num_operands(); ++i) {
      if (!ctx.wants(i) || !ctx.cotangent(i)) continue;
      operands.push_back(i);
      moved.push_back(*ctx.cotangent(i));
    }
    if (operands.empty()) return;
    const std::vector<Value> back = Sort(moved, dim);
    for (size_t i = 0; i < operands.size(); ++i) ctx.Add(operands[i], back[i + 1]);
  }

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    stablehlo::Writer& writer = ctx.writer();
    const int count = node.num_operands();
    const std::string name = writer.NewName();
    std::vector<std::string> operands, results, arguments;
    std::vector<TensorType> types;
    for (int i = 0; i < count; ++i) {
      const TensorType& type = node.operand(i).type();
      operands.push_back(ctx.operand(i));
      results.push_back(count == 1 ? name : fmt::format("{}#{}", name, i));
      types.push_back(type);
    }
    std::string key[2];
    for (int i = 0; i < count; ++i) {
      for (int side = 0; side < 2; ++side) {
        const std::string argument = writer.NewName();
        if (i == 0) key[side] = argument;
        arguments.push_back(
            fmt::format("{}: {}", argument, stablehlo::TypeText(types[i].dtype, {})));
      }
    }
    writer.Line(fmt::format(
        "{}{} = \"stablehlo.sort\"({}) <{{dimension = {} : i64, is_stable = true}}> ({{", name,
        count == 1 ? "" : fmt::format(":{}", count), fmt::join(operands, ", "),
        node.attrs().Int("dim")));
    writer.Line(fmt::format("^bb0({}):", fmt::join(arguments, ", ")));
    writer.Indent();
    const DType dtype = types[0].dtype;
    const std::string scalar = stablehlo::TypeText(dtype, {});
    const std::string before = writer.Assign(
        fmt::format("stablehlo.compare {}, {}, {}, {} : ({}, {}) -> tensor<i1>",
                    node.attrs().Bool("descending") ? "GT" : "LT", key[0], key[1],
                    IsFloat(dtype) ? "TOTALORDER" : (IsUnsigned(dtype) ? "UNSIGNED" : "SIGNED"),
                    scalar, scalar));
    writer.Line(fmt::format("stablehlo.return {} : tensor<i1>", before));
    writer.Dedent();
    const std::string list = stablehlo::TypeList(types);
    writer.Line(fmt::format("}}) : {} -> {}", list, list));
    for (int i = 0; i < count; ++i) ctx.Set(i, results[i]);
  }
};

}  // namespace

const OpDef& SortOp() {
  static const Def* const def = new Def();
  return *def;
}

std::vector<Value> Sort(const std::vector<Value>& operands, int64_t dim, bool descending) {
  Node* node = graph::CommonGraph(operands).AddNode(
      SortOp(), operands,
      {{"dim", FromFront(dim, operands[0].rank())}, {"descending", descending}});
  std::vector<Value> results;
  for (int i = 0; i < node->num_results(); ++i) results.push_back(node->result(i));
  return results;
}

Value ArgSort(Value keys, int64_t dim, bool descending) {
  dim = FromFront(dim, keys.rank());
  if (dim < 0 || dim >= keys.rank()) return Sort({keys}, dim, descending)[0];  // refused there
  const Value index = Iota(keys.graph(), DType::kS32, keys.dims(), static_cast<int>(dim));
  return Sort({keys, index}, dim, descending)[1];
}

}  // namespace mw::ops
