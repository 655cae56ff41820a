#include "meshwright/ops/optimization_barrier.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "optimization_barrier"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    std::vector<TensorType> types;
    for (const Value& v : node.operands()) types.emplace_back(v.dtype(), v.dims());
    return types;
  }

  // kSpecial because one letter per dimension runs out for many operands: the
  // partitioner gives result i the spec of operand i.
  ShardingRule Sharding(const Node&) const override { return ShardingRule::Special(); }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    std::vector<int> flowing;
    std::vector<Value> cotangents;
    for (int i = 0; i < ctx.node().num_results(); ++i) {
      const std::optional<Value> ct = ctx.cotangent(i);
      if (!ct.has_value() || !ctx.wants(i)) continue;
      flowing.push_back(i);
      cotangents.push_back(*ct);
    }
    const std::vector<Value> passed = OptimizationBarrier(cotangents);
    for (size_t k = 0; k < flowing.size(); ++k) ctx.Add(flowing[k], passed[k]);
  }

  void Lower(LowerContext& ctx) const override { LowerAsBarrier(ctx); }
};

}  // namespace

const OpDef& OptimizationBarrierOp() {
  static const Def* const def = new Def();
  return *def;
}

void LowerAsBarrier(LowerContext& ctx) {
  const Node& node = ctx.node();
  std::vector<std::string> names;
  std::vector<TensorType> types;
  for (int i = 0; i < node.num_operands(); ++i) {
    names.push_back(ctx.operand(i));
    types.push_back(node.operand(i).type());
  }
  const std::string name = ctx.writer().NewName();
  const std::string list = stablehlo::TypeList(types);
  ctx.writer().Line(fmt::format("{}:{} = \"stablehlo.optimization_barrier\"({}) : {} -> {}", name,
                                names.size(), fmt::join(names, ", "), list, list));
  for (int i = 0; i < node.num_results(); ++i) ctx.Set(i, fmt::format("{}#{}", name, i));
}

std::vector<Value> OptimizationBarrier(const std::vector<Value>& values) {
  if (values.empty()) return {};
  Node* node = graph::CommonGraph(values).AddNode(OptimizationBarrierOp(), values);
  std::vector<Value> results;
  for (int i = 0; i < node->num_results(); ++i) results.push_back(node->result(i));
  return results;
}

}  // namespace mw::ops
