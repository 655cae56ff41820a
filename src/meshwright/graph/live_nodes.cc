#include "meshwright/graph/live_nodes.h"

namespace mw::graph {

std::vector<bool> LiveNodes(const Graph& graph, const std::vector<const Node*>& given) {
  std::vector<bool> live(graph.nodes().size()), known(graph.nodes().size());
  for (const Node* node : given) known[node->id()] = true;
  const auto need = [&](Value v) { live[v.node->id()] = !known[v.node->id()]; };
  for (const Value& v : graph.outputs()) need(v);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    if (!live[i]) continue;
    for (const Value& v : graph.nodes()[i]->operands()) need(v);
  }
  return live;
}

}  // namespace mw::graph
