#include "meshwright/graph/clone.h"

#include <utility>

namespace mw::graph {
namespace {

Value Lookup(const ValueMap<Value>& map, Value v) {
  auto it = map.find(v);
  MW_CHECK_MSG(it != map.end(), "value is not available in the copy");
  return it->second;
}

std::vector<Value> Lookup(const ValueMap<Value>& map, const std::vector<Value>& values) {
  std::vector<Value> out;
  out.reserve(values.size());
  for (const Value& v : values) out.push_back(Lookup(map, v));
  return out;
}

void CopyNode(Graph& dst, Node& node, ValueMap<Value>* map) {
  Node* copy = CloneNode(dst, node, Lookup(*map, node.operands()));
  for (int r = 0; r < node.num_results(); ++r) (*map)[node.result(r)] = copy->result(r);
}

}  // namespace

Node* CloneNode(Graph& dst, const Node& node, std::vector<Value> operands) {
  std::vector<std::unique_ptr<Graph>> regions;
  for (const auto& region : node.regions()) regions.push_back(CloneGraph(*region));
  const std::string saved = dst.scope();
  dst.set_scope(node.scope());
  Node* copy = dst.AddNode(node.op(), std::move(operands), node.attrs(), std::move(regions));
  dst.set_scope(saved);
  return copy;
}

std::vector<Value> InlineGraph(Graph& dst, const Graph& src, const std::vector<Value>& arguments) {
  MW_CHECK(arguments.size() == src.parameters().size());
  ValueMap<Value> map;
  for (size_t i = 0; i < arguments.size(); ++i) {
    MW_CHECK_MSG(arguments[i].dtype() == src.parameters()[i].dtype() &&
                     arguments[i].dims() == src.parameters()[i].dims(),
                 "argument type differs from the parameter's");
    map[src.parameters()[i]] = dst.Import(arguments[i]);
  }
  for (const auto& node : src.nodes()) {
    if (!node->is_parameter()) CopyNode(dst, *node, &map);
  }
  return Lookup(map, src.outputs());
}

std::vector<Value> AddParametersLike(Graph& dst, const Graph& src) {
  std::vector<Value> parameters;
  for (size_t i = 0; i < src.parameters().size(); ++i) {
    parameters.push_back(
        dst.AddParameter(src.parameters()[i].type(), src.parameter_infos()[i].name));
  }
  return parameters;
}

void SetOutputsLike(Graph& dst, const Graph& src, std::vector<Value> outputs) {
  dst.SetOutputs(std::move(outputs), src.output_names());
  for (size_t i = 0; i < src.parameters().size(); ++i) {
    const int output = src.parameter_infos()[i].donated_to_output;
    if (output >= 0) dst.Donate(static_cast<int>(i), output);
  }
}

std::unique_ptr<Graph> CloneGraph(const Graph& src) {
  auto dst = std::make_unique<Graph>();
  SetOutputsLike(*dst, src, InlineGraph(*dst, src, AddParametersLike(*dst, src)));
  return dst;
}

std::unique_ptr<Graph> ExtractGraph(const Graph& src, const std::vector<Value>& inputs,
                                    const std::vector<Value>& outputs) {
  std::vector<bool> needed(src.nodes().size());
  ValueMap<Value> map;
  auto dst = std::make_unique<Graph>();
  for (const Value& v : inputs) {
    map[v] = dst->AddParameter(v.type(), v.node->is_parameter() ? "input" : "residual");
  }
  auto need = [&](const Value& v) {
    if (!map.contains(v)) needed[v.node->id()] = true;
  };
  for (const Value& v : outputs) need(v);
  for (size_t i = src.nodes().size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const Value& v : src.nodes()[i]->operands()) need(v);
  }
  for (const auto& node : src.nodes()) {
    if (!needed[node->id()]) continue;
    MW_CHECK_MSG(!node->is_parameter(), "a parameter that is not an input is reached");
    Node* copy = CloneNode(*dst, *node, Lookup(map, node->operands()));
    // An input that is one result of a copied node keeps standing for itself.
    for (int r = 0; r < node->num_results(); ++r) map.emplace(node->result(r), copy->result(r));
  }
  dst->SetOutputs(Lookup(map, outputs));
  return dst;
}

}  // namespace mw::graph
