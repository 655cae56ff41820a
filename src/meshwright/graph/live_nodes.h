#ifndef MESHWRIGHT_GRAPH_LIVE_NODES_H_
#define MESHWRIGHT_GRAPH_LIVE_NODES_H_

#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::graph {

// By node id, whether an output of `graph` needs the node.
std::vector<bool> LiveNodes(const Graph& graph);

}  // namespace mw::graph

#endif  // MESHWRIGHT_GRAPH_LIVE_NODES_H_
