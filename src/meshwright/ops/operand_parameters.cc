#include "meshwright/ops/operand_parameters.h"

#include <fmt/format.h>

namespace mw::ops {

std::vector<Value> OperandParameters(Graph& graph, const Node& node) {
  std::vector<Value> parameters;
  for (int i = 0; i < node.num_operands(); ++i) {
    const TensorType& type = node.operand(i).type();
    parameters.push_back(
        graph.AddParameter(TensorType(type.dtype, type.dims), fmt::format("x{}", i)));
  }
  return parameters;
}

std::vector<std::string> InlineOverOperands(LowerContext& ctx, const Graph& graph) {
  std::vector<std::string> operands;
  operands.reserve(ctx.node().operands().size());
  for (int i = 0; i < ctx.node().num_operands(); ++i) operands.push_back(ctx.operand(i));
  return ctx.Inline(graph, operands);
}

}  // namespace mw::ops
