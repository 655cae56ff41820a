#include "meshwright/spmd/rewrite_nodes.h"

#include <string>
#include <utility>

#include "meshwright/graph/clone.h"
#include "meshwright/ops/reshape.h"

namespace mw::spmd {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueMap;

std::unique_ptr<Graph> RewriteNodes(const Graph& local, const RewriteNode& rewrite) {
  auto dst = std::make_unique<Graph>();
  ValueMap<Value> map;
  for (size_t i = 0; i < local.parameters().size(); ++i) {
    const Value old = local.parameters()[i];
    map[old] = dst->AddParameter(old.type(), local.parameter_infos()[i].name);
  }
  for (const auto& node : local.nodes()) {
    if (node->is_parameter()) continue;
    std::vector<Value> operands;
    for (const Value& v : node->operands()) operands.push_back(map.at(v));
    const std::string saved = dst->scope();
    dst->set_scope(node->scope());
    std::vector<Value> results = rewrite(*dst, *node, operands);
    dst->set_scope(saved);
    if (results.empty()) {
      Node* copy = graph::CloneNode(*dst, *node, std::move(operands));
      for (int r = 0; r < node->num_results(); ++r) results.push_back(copy->result(r));
    }
    for (int r = 0; r < node->num_results(); ++r) map[node->result(r)] = results[r];
  }
  std::vector<Value> outputs;
  for (const Value& v : local.outputs()) outputs.push_back(map.at(v));
  dst->SetOutputs(std::move(outputs), local.output_names());
  for (size_t i = 0; i < local.parameters().size(); ++i) {
    const int output = local.parameter_infos()[i].donated_to_output;
    if (output >= 0) dst->Donate(static_cast<int>(i), output);
  }
  return dst;
}

Value DropLeadingDim(Value row) {
  return ops::Reshape(row, Dims(row.dims().begin() + 1, row.dims().end()));
}

Value AddLeadingDim(Value slice) {
  Dims dims = {1};
  dims.insert(dims.end(), slice.dims().begin(), slice.dims().end());
  return ops::Reshape(slice, std::move(dims));
}

}  // namespace mw::spmd
