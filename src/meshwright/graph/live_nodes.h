#ifndef MESHWRIGHT_GRAPH_LIVE_NODES_H_
#define MESHWRIGHT_GRAPH_LIVE_NODES_H_

#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::graph {

// By node id, whether an output of `graph` needs the node, once the values of the nodes
// `given` are known: neither they nor what only they need.
std::vector<bool> LiveNodes(const Graph& graph, const std::vector<const Node*>& given = {});

}  // namespace mw::graph

#endif  // MESHWRIGHT_GRAPH_LIVE_NODES_H_
