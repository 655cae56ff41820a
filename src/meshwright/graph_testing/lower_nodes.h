// LowerNodes: what the ops of a graph write, without the passes before lowering.
#ifndef MESHWRIGHT_GRAPH_TESTING_LOWER_NODES_H_
#define MESHWRIGHT_GRAPH_TESTING_LOWER_NODES_H_

#include <string>

#include "meshwright/graph/graph.h"

namespace mw {

// A StableHLO module whose function `main` holds the nodes of `graph` one by one;
// parameters are %arg0, %arg1, …
// REQUIRES: no node has a region.
std::string LowerNodes(const graph::Graph& graph);

}  // namespace mw

#endif  // MESHWRIGHT_GRAPH_TESTING_LOWER_NODES_H_
