#include "meshwright/ops/op_def.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mw::ops {

void LowerContext::EmitSameType(std::string_view mnemonic) {
  std::vector<std::string> names;
  for (int i = 0; i < node().num_operands(); ++i) names.push_back(operand(i));
  Set(0, writer().Assign(fmt::format("{} {} : {}", mnemonic, fmt::join(names, ", "),
                                     stablehlo::TypeText(node().types()[0]))));
}

void LowerContext::EmitGeneric(std::string_view mnemonic, std::string_view attributes) {
  std::vector<std::string> names;
  std::vector<TensorType> types;
  for (int i = 0; i < node().num_operands(); ++i) {
    names.push_back(operand(i));
    types.push_back(node().operand(i).type());
  }
  Set(0, writer().Assign(fmt::format("\"{}\"({}) {}{}: {} -> {}", mnemonic, fmt::join(names, ", "),
                                     attributes, attributes.empty() ? "" : " ",
                                     stablehlo::TypeList(types),
                                     stablehlo::TypeText(node().types()[0]))));
}

std::vector<Value> OpDef::VjpForward(VjpForwardContext& ctx) const {
  const Node& node = ctx.node();
  std::vector<Value> operands;
  operands.reserve(node.operands().size());
  for (int i = 0; i < node.num_operands(); ++i) operands.push_back(ctx.operand(i));
  MW_CHECK_MSG(node.regions().empty(), "region ops build their own forward");
  Node* clone = ctx.graph().AddNode(node.op(), std::move(operands), node.attrs());
  std::vector<Value> results;
  for (int i = 0; i < clone->num_results(); ++i) results.push_back(clone->result(i));
  return results;
}

const OpDef& DefOf(const Node& node) {
  MW_CHECK(!node.is_parameter());
  return static_cast<const OpDef&>(node.op());
}

}  // namespace mw::ops
