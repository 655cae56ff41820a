#include "meshwright/spmd/prefetch.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/graph/clone.h"
#include "meshwright/graph/live_nodes.h"
#include "meshwright/ops/dynamic_slice.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/slice.h"
#include "meshwright/spmd/rewrite_nodes.h"

namespace mw::spmd {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueMap;
using ops::ScanLayout;

// A gather of a body, and how it comes from a slice.
struct Gather {
  int x = 0;                 // which of the scan's xs
  std::vector<Node*> chain;  // from the slice to the gather, which is the last
};

// The gathers of `body` that depend on one x alone.
std::vector<Gather> FindGathers(const Graph& body, const ScanLayout& layout) {
  const std::vector<bool> live = graph::LiveNodes(body);
  std::vector<Gather> gathers;
  for (const auto& node : body.nodes()) {
    if (node->op_name() != "all_gather" || !live[node->id()]) continue;
    Gather gather;
    gather.chain.push_back(node.get());
    Value v = node->operand(0);
    while (!v.node->is_parameter()) {
      const std::string_view op = v.node->op_name();
      if (op == "optimization_barrier") {  // the loop itself is one
        v = v.node->operand(v.index);
        continue;
      }
      if (op != "convert" && op != "reshape" && op != "transpose") break;
      gather.chain.push_back(v.node);
      v = v.node->operand(0);
    }
    const auto& parameters = body.parameters();
    const auto p = static_cast<int>(std::ranges::find(parameters, v) - parameters.begin());
    if (p == static_cast<int>(parameters.size()) || !layout.is_x(p)) continue;
    gather.x = p - layout.num_carry;
    std::ranges::reverse(gather.chain);
    gathers.push_back(std::move(gather));
  }
  return gathers;
}

// The chain over another slice.
Value Append(Graph& dst, const Gather& gather, Value slice) {
  for (Node* node : gather.chain) slice = graph::CloneNode(dst, *node, {slice})->result();
  return slice;
}

// `node` over `operands` of `dst`, gathering ahead; what stands for its results.
std::vector<Value> Rewrite(Graph& dst, const Node& node, const std::vector<Value>& operands,
                           const std::vector<Gather>& gathers) {
  const ScanLayout layout(node);
  const Graph& src = *node.regions()[0];
  std::vector<const Node*> given;
  for (const Gather& gather : gathers) given.push_back(gather.chain.back());
  const std::vector<bool> needed = graph::LiveNodes(src, given);
  const auto operand = [&](int p) { return operands[layout.operand_of(p)]; };

  std::vector<Value> carry(operands.begin(), operands.begin() + layout.num_carry);
  for (const Gather& gather : gathers) {
    const Value stacked = operands[layout.num_carry + gather.x];
    const int64_t first = layout.reverse ? layout.length - 1 : 0;
    carry.push_back(
        Append(dst, gather, DropLeadingDim(ops::SliceInDim(stacked, 0, first, first + 1))));
  }
  std::vector<Value> xs = {ops::Iota(dst, DType::kS32, {layout.length}, 0)};

  auto body = std::make_unique<Graph>(&dst);
  ValueMap<Value> map;
  const auto parameter = [&](int p) {
    const Value old = src.parameters()[p];
    map[old] = body->AddParameter(old.type(), src.parameter_infos()[p].name);
  };
  for (int p = 0; p < layout.num_carry; ++p) parameter(p);
  for (const Gather& gather : gathers) {
    const Value gathered = gather.chain.back()->result();
    map[gathered] = body->AddParameter(gathered.type(), "gathered");
  }
  const Value index = body->AddParameter(TensorType(DType::kS32, {}), "index");
  for (int p = layout.num_carry; p < layout.num_carry + layout.num_xs; ++p) {
    if (!needed[src.parameters()[p].node->id()]) continue;
    parameter(p);
    xs.push_back(operand(p));
  }
  for (int p = layout.num_carry + layout.num_xs; p < layout.num_parameters(); ++p) {
    if (needed[src.parameters()[p].node->id()]) {
      map[src.parameters()[p]] = body->Import(operand(p));
    }
  }
  const Value next = NeighborIndex(index, layout.reverse ? -1 : 1, layout.length);
  std::vector<Value> ahead;
  for (const Gather& gather : gathers) {
    const Value stacked = body->Import(operands[layout.num_carry + gather.x]);
    ahead.push_back(
        Append(*body, gather, DropLeadingDim(ops::DynamicSliceInDim(stacked, next, 1, 0))));
  }
  for (const auto& old : src.nodes()) {
    if (old->is_parameter() || !needed[old->id()]) continue;
    std::vector<Value> inputs;
    for (const Value& v : old->operands()) inputs.push_back(map.at(v));
    Node* copy = graph::CloneNode(*body, *old, std::move(inputs));
    for (int r = 0; r < old->num_results(); ++r) map[old->result(r)] = copy->result(r);
  }
  std::vector<Value> outputs;
  for (const Value& v : src.outputs()) outputs.push_back(map.at(v));
  outputs.insert(outputs.begin() + layout.num_carry, ahead.begin(), ahead.end());
  body->SetOutputs(std::move(outputs));

  std::vector<Value> inputs = carry;
  inputs.insert(inputs.end(), xs.begin(), xs.end());
  const auto sinks = operands.begin() + layout.num_carry + layout.num_xs;
  inputs.insert(inputs.end(), sinks, sinks + layout.num_sinks);
  for (const auto& [outer, inner] : body->captures()) inputs.push_back(outer);
  graph::Attributes attributes = node.attrs();
  attributes.Set("num_carry", static_cast<int64_t>(carry.size()));
  attributes.Set("num_xs", static_cast<int64_t>(xs.size()));
  std::vector<std::unique_ptr<Graph>> regions;
  regions.push_back(std::move(body));
  Node* scan = dst.AddNode(node.op(), std::move(inputs), std::move(attributes), std::move(regions));
  std::vector<Value> results;
  const int skip = static_cast<int>(gathers.size());
  for (int r = 0; r < node.num_results(); ++r) {
    results.push_back(scan->result(r < layout.num_carry ? r : r + skip));
  }
  return results;
}

}  // namespace

std::unique_ptr<Graph> PrefetchGathers(const Graph& local) {
  return RewriteNodes(local, [](Graph& dst, const Node& node, const std::vector<Value>& operands) {
    if (node.op_name() != "scan") return std::vector<Value>();
    const std::vector<Gather> gathers = FindGathers(*node.regions()[0], ScanLayout(node));
    return gathers.empty() ? std::vector<Value>() : Rewrite(dst, node, operands, gathers);
  });
}

}  // namespace mw::spmd
