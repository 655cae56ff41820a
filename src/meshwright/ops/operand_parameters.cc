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

}  // namespace mw::ops
