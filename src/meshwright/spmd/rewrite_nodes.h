// Copies of a device's program with some of its nodes written anew.
#ifndef MESHWRIGHT_SPMD_REWRITE_NODES_H_
#define MESHWRIGHT_SPMD_REWRITE_NODES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::spmd {

// What stands for the results of `node`, of the old graph, over `operands` of `dst`; empty: it is
// copied as it is.
using RewriteNode = std::function<std::vector<graph::Value>(
    graph::Graph& dst, const graph::Node& node, const std::vector<graph::Value>& operands)>;

// A copy of `local` whose nodes `rewrite` may replace, also those of scans that it leaves and that
// have a scan in them; with the same interface: names, donations.
std::unique_ptr<graph::Graph> RewriteNodes(const graph::Graph& local, const RewriteNode& rewrite);

// index + step, at the end of 0 … length - 1 where that is beyond it.
graph::Value NeighborIndex(graph::Value index, int64_t step, int64_t length);

// `row` [1, …] without its leading dim, and a row with one.
graph::Value DropLeadingDim(graph::Value row);
graph::Value AddLeadingDim(graph::Value slice);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_REWRITE_NODES_H_
