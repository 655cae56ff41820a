#include "meshwright/graph/live_nodes.h"

namespace mw::graph {

std::vector<bool> LiveNodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes().size());
  for (const Value& v : graph.outputs()) live[v.node->id()] = true;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    if (!live[i]) continue;
    for (const Value& v : graph.nodes()[i]->operands()) live[v.node->id()] = true;
  }
  return live;
}

}  // namespace mw::graph
