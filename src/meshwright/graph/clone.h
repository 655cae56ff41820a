// Copying nodes and graphs into other graphs.
#ifndef MESHWRIGHT_GRAPH_CLONE_H_
#define MESHWRIGHT_GRAPH_CLONE_H_

#include <memory>
#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::graph {

// Appends a copy of `node` (not a parameter) over `operands` of `dst`, with copies
// of its regions and its scope.
Node* CloneNode(Graph& dst, const Node& node, std::vector<Value> operands);

// Appends a copy of `src`'s nodes with its parameters replaced by `arguments`;
// returns what stands for its outputs.
// REQUIRES: one argument per parameter, of its dtype and dims.
std::vector<Value> InlineGraph(Graph& dst, const Graph& src, const std::vector<Value>& arguments);

// Appends a parameter like each of `src`'s.
std::vector<Value> AddParametersLike(Graph& dst, const Graph& src);

// Makes `outputs` those of `dst`, with the names of `src`'s, and donates what `src` does.
// REQUIRES: parameters of AddParametersLike.
void SetOutputsLike(Graph& dst, const Graph& src, std::vector<Value> outputs);

// A copy without a parent; captured parameters become plain ones, in the same
// place.
std::unique_ptr<Graph> CloneGraph(const Graph& src);

// A copy of the nodes that `outputs` (values of `src`) need, with the values
// `inputs` of `src` as parameters. Values on the way that `inputs` do not cover
// are recomputed from nodes; REQUIRES: no other parameter of `src` is reached.
std::unique_ptr<Graph> ExtractGraph(const Graph& src, const std::vector<Value>& inputs,
                                    const std::vector<Value>& outputs);

}  // namespace mw::graph

#endif  // MESHWRIGHT_GRAPH_CLONE_H_
