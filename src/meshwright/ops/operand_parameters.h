#ifndef MESHWRIGHT_OPS_OPERAND_PARAMETERS_H_
#define MESHWRIGHT_OPS_OPERAND_PARAMETERS_H_

#include <string>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Adds parameters x0, x1, ... of the global types of `node`'s operands to `graph` and returns them:
// those of a graph that says what the node computes in other ops.
std::vector<Value> OperandParameters(Graph& graph, const Node& node);

// Lowers the node as such a graph, whose parameters are its operands; the names of the outputs.
std::vector<std::string> InlineOverOperands(LowerContext& ctx, const Graph& graph);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_OPERAND_PARAMETERS_H_
