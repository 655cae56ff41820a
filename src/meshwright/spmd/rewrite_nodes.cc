#include "meshwright/spmd/rewrite_nodes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "meshwright/graph/clone.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/max.h"
#include "meshwright/ops/min.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/scan.h"

namespace mw::spmd {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueMap;

namespace {

bool HasScan(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(),
                             [](const auto& node) { return node->op_name() == "scan"; });
}

// Appends copies of `src`'s nodes, whose parameters `map` knows, to `dst`.
void CopyNodes(Graph& dst, const Graph& src, ValueMap<Value>& map, const RewriteNode& rewrite);

// A scan over `operands` whose body is rewritten.
Node* CopyScan(Graph& dst, const Node& scan, const std::vector<Value>& operands,
               const RewriteNode& rewrite) {
  const ops::ScanLayout layout(scan);
  const Graph& src = *scan.regions()[0];
  auto body = std::make_unique<Graph>(&dst);
  ValueMap<Value> map;
  for (int p = 0; p < layout.num_parameters(); ++p) {
    const Value old = src.parameters()[p];
    map[old] = layout.is_carry(p) || layout.is_x(p)
                   ? body->AddParameter(old.type(), src.parameter_infos()[p].name)
                   : body->Import(operands[layout.operand_of(p)]);
  }
  CopyNodes(*body, src, map, rewrite);
  std::vector<Value> outputs;
  for (const Value& v : src.outputs()) outputs.push_back(map.at(v));
  body->SetOutputs(std::move(outputs), src.output_names());
  std::vector<Value> inputs(operands.begin(), operands.end() - layout.num_captures);
  for (const auto& [outer, inner] : body->captures()) inputs.push_back(outer);
  std::vector<std::unique_ptr<Graph>> regions;
  regions.push_back(std::move(body));
  return dst.AddNode(scan.op(), std::move(inputs), scan.attrs(), std::move(regions));
}

void CopyNodes(Graph& dst, const Graph& src, ValueMap<Value>& map, const RewriteNode& rewrite) {
  for (const auto& node : src.nodes()) {
    if (node->is_parameter()) continue;
    std::vector<Value> operands;
    for (const Value& v : node->operands()) operands.push_back(map.at(v));
    const std::string saved = dst.scope();
    dst.set_scope(node->scope());
    std::vector<Value> results = rewrite(dst, *node, operands);
    if (results.empty()) {
      const bool nested = node->op_name() == "scan" && HasScan(*node->regions()[0]);
      Node* copy = nested ? CopyScan(dst, *node, operands, rewrite)
                          : graph::CloneNode(dst, *node, std::move(operands));
      for (int r = 0; r < node->num_results(); ++r) results.push_back(copy->result(r));
    }
    dst.set_scope(saved);
    for (int r = 0; r < node->num_results(); ++r) map[node->result(r)] = results[r];
  }
}

}  // namespace

std::unique_ptr<Graph> RewriteNodes(const Graph& local, const RewriteNode& rewrite) {
  auto dst = std::make_unique<Graph>();
  const std::vector<Value> parameters = graph::AddParametersLike(*dst, local);
  ValueMap<Value> map;
  for (size_t i = 0; i < parameters.size(); ++i) map[local.parameters()[i]] = parameters[i];
  CopyNodes(*dst, local, map, rewrite);
  std::vector<Value> outputs;
  for (const Value& v : local.outputs()) outputs.push_back(map.at(v));
  graph::SetOutputsLike(*dst, local, std::move(outputs));
  return dst;
}

Value NeighborIndex(Value index, int64_t step, int64_t length) {
  const Value moved = ops::Add(index, static_cast<double>(step));
  return step < 0 ? ops::Maximum(moved, 0.0) : ops::Minimum(moved, static_cast<double>(length - 1));
}

Value DropLeadingDim(Value row) {
  return ops::Reshape(row, Dims(row.dims().begin() + 1, row.dims().end()));
}

Value AddLeadingDim(Value slice) {
  Dims dims = {1};
  dims.insert(dims.end(), slice.dims().begin(), slice.dims().end());
  return ops::Reshape(slice, dims);
}

}  // namespace mw::spmd
