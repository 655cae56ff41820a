#include "meshwright/spmd/delay_reductions.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/graph/clone.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/collective.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/dynamic_slice.h"
#include "meshwright/ops/dynamic_update_slice.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/optimization_barrier.h"
#include "meshwright/ops/scan.h"
#include "meshwright/spmd/rewrite_nodes.h"

namespace mw::spmd {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueMap;
using ops::ScanLayout;

// A reduction of a body, and how a stacked result comes from it.
struct Reduction {
  int y = 0;                 // which of the scan's ys
  std::vector<Node*> chain;  // from the reduction to the result, barriers among them
  Value operand() const { return chain[0]->operand(0); }
};

bool IsBarrier(const Node& node) { return node.op_name() == "optimization_barrier"; }

bool IsReduction(const Node& node) {
  return node.op_name() == "reduce_scatter" ||
         (node.op_name() == "all_reduce" && node.attrs().String("kind") == "add");
}

// The reductions of `body` that nothing but a stacked result reads, from the first one over an axis
// of `axes` on.
std::vector<Reduction> FindReductions(const Graph& body, const ScanLayout& layout,
                                      const std::vector<std::string>& axes) {
  ValueMap<int> uses;
  for (const Value& v : body.outputs()) ++uses[v];
  for (const auto& node : body.nodes()) {
    for (const Value& v : node->operands()) ++uses[v];
  }
  std::vector<Reduction> reductions;
  for (int k = 0; k < layout.num_ys(); ++k) {
    Reduction reduction;
    reduction.y = k;
    size_t length = 0;  // of the chain from the result back to the reduction
    Value v = body.outputs()[layout.num_carry + k];
    while (!v.node->is_parameter() && uses[v] == 1) {
      const std::string_view op = v.node->op_name();
      const bool own_barrier = IsBarrier(*v.node) && v.node->num_results() == 1;
      if (!own_barrier && !IsReduction(*v.node) && op != "convert" && op != "reshape" &&
          op != "transpose") {
        break;
      }
      reduction.chain.push_back(v.node);
      if (IsReduction(*v.node) && ops::GroupsOf(*v.node).IsOver(axes))
        length = reduction.chain.size();
      v = v.node->operand(0);
    }
    if (length == 0) continue;
    reduction.chain.resize(length);
    std::ranges::reverse(reduction.chain);
    reductions.push_back(std::move(reduction));
  }
  return reductions;
}

// What is stacked of `pending`.
Value Reduce(Graph& dst, const Reduction& reduction, Value pending) {
  for (const Node* node : reduction.chain) {
    if (!IsBarrier(*node)) pending = graph::CloneNode(dst, *node, {pending})->result();
  }
  return ops::OptimizationBarrier({pending})[0];
}

// `stacked` with `slice` at `index` of its leading dim, or added to what is there.
Value Put(Value stacked, Value slice, Value index, bool add) {
  Value row = AddLeadingDim(slice);
  if (add) row = ops::Add(ops::DynamicSliceInDim(stacked, index, 1, 0), row);
  return ops::DynamicUpdateSliceInDim(stacked, row, index, 0);
}

// `node` over `operands` of `dst`, reducing late; what stands for its results. Body and scan take
// the old carry, what is pending and the results that it goes to, then an index and the old xs.
std::vector<Value> Rewrite(Graph& dst, const Node& node, const std::vector<Value>& operands,
                           const std::vector<Reduction>& reductions) {
  const ScanLayout layout(node);
  const Graph& src = *node.regions()[0];
  const auto is_sum = [&](const Reduction& r) { return layout.y_sinks[r.y] >= 0; };
  std::vector<int> late(static_cast<size_t>(layout.num_ys()), -1);  // by y
  for (size_t i = 0; i < reductions.size(); ++i) late[reductions[i].y] = static_cast<int>(i);

  std::vector<Value> carry(operands.begin(), operands.begin() + layout.num_carry);
  for (const Reduction& reduction : reductions) {
    const TensorType& type = reduction.operand().type();
    carry.push_back(ops::Full(dst, type.dtype, type.dims, 0));
  }
  for (const Reduction& reduction : reductions) {
    const TensorType& type = node.types()[layout.num_carry + reduction.y];
    carry.push_back(is_sum(reduction) ? operands[layout.sink_operand(reduction.y)]
                                      : ops::Full(dst, type.dtype, type.dims, 0));
  }

  auto body = std::make_unique<Graph>(&dst);
  ValueMap<Value> map;
  const auto parameter = [&](int p) {
    const Value old = src.parameters()[p];
    map[old] = body->AddParameter(old.type(), src.parameter_infos()[p].name);
  };
  for (int p = 0; p < layout.num_carry; ++p) parameter(p);
  std::vector<Value> pending, stacked;
  for (size_t i = 0; i < reductions.size(); ++i) {
    pending.push_back(body->AddParameter(carry[layout.num_carry + i].type(), "pending"));
  }
  for (size_t i = 0; i < reductions.size(); ++i) {
    stacked.push_back(
        body->AddParameter(carry[layout.num_carry + reductions.size() + i].type(), "stacked"));
  }
  const Value index = body->AddParameter(TensorType(DType::kS32, {}), "index");
  for (int p = layout.num_carry; p < layout.num_carry + layout.num_xs; ++p) parameter(p);
  for (int p = layout.num_carry + layout.num_xs; p < layout.num_parameters(); ++p) {
    map[src.parameters()[p]] = body->Import(operands[layout.operand_of(p)]);
  }

  const Value before = NeighborIndex(index, layout.reverse ? 1 : -1, layout.length);
  for (size_t i = 0; i < reductions.size(); ++i) {
    stacked[i] =
        Put(stacked[i], Reduce(*body, reductions[i], pending[i]), before, is_sum(reductions[i]));
  }
  std::vector<const Node*> given;
  for (const Reduction& reduction : reductions) {
    given.insert(given.end(), reduction.chain.begin(), reduction.chain.end());
  }
  for (const auto& old : src.nodes()) {
    if (old->is_parameter() || std::ranges::find(given, old.get()) != given.end()) continue;
    std::vector<Value> inputs;
    for (const Value& v : old->operands()) inputs.push_back(map.at(v));
    Node* copy = graph::CloneNode(*body, *old, std::move(inputs));
    for (int r = 0; r < old->num_results(); ++r) map[old->result(r)] = copy->result(r);
  }
  std::vector<Value> outputs;
  outputs.reserve(src.outputs().size() + 2 * reductions.size());
  for (int c = 0; c < layout.num_carry; ++c) outputs.push_back(map.at(src.outputs()[c]));
  for (const Reduction& reduction : reductions) outputs.push_back(map.at(reduction.operand()));
  outputs.insert(outputs.end(), stacked.begin(), stacked.end());
  std::vector<int64_t> y_sinks;
  std::vector<Value> sinks;
  for (int k = 0; k < layout.num_ys(); ++k) {
    if (late[k] >= 0) continue;
    outputs.push_back(map.at(src.outputs()[layout.num_carry + k]));
    const bool sum = layout.y_sinks[k] >= 0;
    y_sinks.push_back(sum ? static_cast<int64_t>(sinks.size()) : -1);
    if (sum) sinks.push_back(operands[layout.sink_operand(k)]);
  }
  body->SetOutputs(std::move(outputs));

  std::vector<Value> inputs = carry;
  inputs.push_back(ops::Iota(dst, DType::kS32, {layout.length}, 0));
  const auto xs = operands.begin() + layout.num_carry;
  inputs.insert(inputs.end(), xs, xs + layout.num_xs);
  inputs.insert(inputs.end(), sinks.begin(), sinks.end());
  for (const auto& [outer, inner] : body->captures()) inputs.push_back(outer);
  graph::Attributes attributes = node.attrs();
  attributes.Set("num_carry", static_cast<int64_t>(carry.size()));
  attributes.Set("num_xs", static_cast<int64_t>(layout.num_xs + 1));
  attributes.Set("y_sinks", std::move(y_sinks));
  std::vector<std::unique_ptr<Graph>> regions;
  regions.push_back(std::move(body));
  Node* scan = dst.AddNode(node.op(), std::move(inputs), std::move(attributes), std::move(regions));

  std::vector<Value> results;
  results.reserve(static_cast<size_t>(node.num_results()));
  for (int c = 0; c < layout.num_carry; ++c) results.push_back(scan->result(c));
  const auto last = static_cast<double>(layout.reverse ? 0 : layout.length - 1);
  const Value end = ops::Full(dst, DType::kS32, {}, last);
  int next = static_cast<int>(carry.size());
  for (int k = 0; k < layout.num_ys(); ++k) {
    if (late[k] < 0) {
      results.push_back(scan->result(next++));
      continue;
    }
    const Reduction& reduction = reductions[late[k]];
    const Value left = scan->result(layout.num_carry + late[k]);
    const Value stack =
        scan->result(layout.num_carry + static_cast<int>(reductions.size()) + late[k]);
    results.push_back(Put(stack, Reduce(dst, reduction, left), end, is_sum(reduction)));
  }
  return results;
}

}  // namespace

std::unique_ptr<Graph> DelayReductions(const Graph& local, const std::vector<std::string>& axes) {
  return RewriteNodes(local, [&](Graph& dst, const Node& node, const std::vector<Value>& operands) {
    if (node.op_name() != "scan") return std::vector<Value>();
    const std::vector<Reduction> reductions =
        FindReductions(*node.regions()[0], ScanLayout(node), axes);
    return reductions.empty() ? std::vector<Value>() : Rewrite(dst, node, operands, reductions);
  });
}

}  // namespace mw::spmd
