#include "meshwright/ops/remat.h"

#include <fmt/format.h>

#include <memory>

#include "meshwright/graph/clone.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/optimization_barrier.h"

namespace mw::ops {
namespace {

struct Saved {
  std::shared_ptr<RegionSplit> split;
  std::vector<Value> residuals;
};

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "remat"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    std::vector<TensorType> types;
    for (const Value& v : node.regions().at(0)->outputs()) {
      types.emplace_back(v.dtype(), v.dims());
    }
    return types;
  }

  ShardingRule Sharding(const Node&) const override { return ShardingRule::Special(); }

  std::vector<Value> VjpForward(VjpForwardContext& ctx) const override {
    const Node& node = ctx.node();
    const Graph& body = *node.regions()[0];
    std::vector<bool> active;
    std::vector<Value> operands;
    for (int i = 0; i < node.num_operands(); ++i) {
      active.push_back(ctx.active(i));
      operands.push_back(ctx.operand(i));
    }
    Saved saved;
    saved.split = std::make_shared<RegionSplit>(
        ctx.Split(body, active, ctx.ActiveOutputs(body, active), node.attrs().String("policy")));
    std::vector<Value> results = graph::InlineGraph(ctx.graph(), *saved.split->forward, operands);
    saved.residuals.assign(results.begin() + node.num_results(), results.end());
    results.resize(static_cast<size_t>(node.num_results()));
    ctx.saved() = std::move(saved);
    return results;
  }

  void Vjp(VjpContext& ctx) const override {
    const Saved& saved = std::any_cast<const Saved&>(ctx.saved());
    const RegionSplit& split = *saved.split;
    std::vector<Value> arguments;
    for (int p : split.backward_inputs) arguments.push_back(ctx.operand(p));
    arguments.insert(arguments.end(), saved.residuals.begin(), saved.residuals.end());
    for (int o : split.cotangent_outputs) {
      const TensorType& type = ctx.node().types()[o];
      const std::optional<Value> ct = ctx.cotangent(o);
      arguments.push_back(ct ? *ct : Full(ctx.graph(), type.dtype, type.dims, 0));
    }
    if (ctx.node().attrs().String("policy") != "none") {
      arguments = OptimizationBarrier(arguments);
    }
    const std::vector<Value> grads = graph::InlineGraph(ctx.graph(), *split.backward, arguments);
    for (size_t k = 0; k < grads.size(); ++k) ctx.Add(split.wanted_inputs[k], grads[k]);
  }

  void Lower(LowerContext& ctx) const override {
    std::vector<std::string> arguments;
    for (int i = 0; i < ctx.node().num_operands(); ++i) arguments.push_back(ctx.operand(i));
    const std::vector<std::string> outputs = ctx.Inline(*ctx.node().regions()[0], arguments);
    for (size_t i = 0; i < outputs.size(); ++i) ctx.Set(static_cast<int>(i), outputs[i]);
  }
};

}  // namespace

const OpDef& RematOp() {
  static const Def* const def = new Def();
  return *def;
}

std::vector<Value> Remat(std::vector<Value> inputs, const RematBody& body,
                         const std::string& policy) {
  Graph& graph = graph::CommonGraph(inputs);
  auto region = std::make_unique<Graph>(&graph);
  std::vector<Value> parameters;
  for (size_t i = 0; i < inputs.size(); ++i) {
    parameters.push_back(region->AddParameter(inputs[i].type(), fmt::format("input{}", i)));
  }
  region->SetOutputs(body(*region, parameters));
  for (const auto& capture : region->captures()) inputs.push_back(capture.first);
  std::vector<std::unique_ptr<Graph>> regions;
  regions.push_back(std::move(region));
  Node* node =
      graph.AddNode(RematOp(), std::move(inputs), {{"policy", policy}}, std::move(regions));
  std::vector<Value> results;
  for (int r = 0; r < node->num_results(); ++r) results.push_back(node->result(r));
  return results;
}

}  // namespace mw::ops
