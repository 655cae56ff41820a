#include "meshwright/graph_testing/lower_nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueMap;

class Context final : public ops::LowerContext {
 public:
  Context(stablehlo::Writer& writer, ValueMap<std::string>& names, Node& node)
      : writer_(writer), names_(names), node_(node) {}

  stablehlo::Writer& writer() override { return writer_; }
  const ops::Target& target() override { return target_; }
  const Node& node() override { return node_; }
  std::string operand(int i) override { return names_.at(node_.operand(i)); }
  void Set(int i, std::string name) override { names_[node_.result(i)] = std::move(name); }
  std::vector<std::string> Inline(const Graph&, const std::vector<std::string>&) override {
    MW_CHECK_MSG(false, "regions are not lowered here");
    return {};
  }

 private:
  stablehlo::Writer& writer_;
  ops::Target target_;
  ValueMap<std::string>& names_;
  Node& node_;
};

}  // namespace

std::string LowerNodes(const Graph& graph) {
  stablehlo::Writer writer;
  ValueMap<std::string> names;
  std::vector<std::string> parameters;
  for (const Value& p : graph.parameters()) {
    names[p] = fmt::format("%arg{}", parameters.size());
    parameters.push_back(fmt::format("{}: {}", names[p], stablehlo::TypeText(p.type())));
  }
  std::vector<TensorType> types;
  for (const Value& v : graph.outputs()) types.push_back(v.type());
  const std::string result_types = stablehlo::TypeList(types);
  writer.Line("module {");
  writer.Indent();
  writer.Line(fmt::format("func.func public @main({}) -> {} {{", fmt::join(parameters, ", "),
                          result_types));
  writer.Indent();
  for (const auto& node : graph.nodes()) {
    if (node->is_parameter()) continue;
    Context context(writer, names, *node);
    ops::DefOf(*node).Lower(context);
  }
  std::vector<std::string> results;
  for (const Value& v : graph.outputs()) results.push_back(names.at(v));
  writer.Line(fmt::format("return {} : {}", fmt::join(results, ", "),
                          result_types.substr(1, result_types.size() - 2)));
  writer.Dedent();
  writer.Line("}");
  writer.Dedent();
  writer.Line("}");
  return writer.text();
}

}  // namespace mw
