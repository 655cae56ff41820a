#include "meshwright/compile/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::compile {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

// Marks the nodes that the outputs of `graph` need.
std::vector<bool> LiveNodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes().size());
  for (const Value& v : graph.outputs()) live[v.node->id()] = true;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    if (!live[i]) continue;
    for (const Value& v : graph.nodes()[i]->operands()) live[v.node->id()] = true;
  }
  return live;
}

class Lowering;

class Context final : public ops::LowerContext {
 public:
  Context(Lowering& lowering, const Node& node, std::vector<std::string> operands)
      : lowering_(lowering), node_(node), operands_(std::move(operands)) {
    results.resize(static_cast<size_t>(node.num_results()));
  }
  stablehlo::Writer& writer() override;
  const Node& node() override { return node_; }
  std::string operand(int i) override { return operands_[i]; }
  void Set(int i, std::string name) override { results[i] = std::move(name); }
  std::vector<std::string> Inline(const Graph& region,
                                  const std::vector<std::string>& arguments) override;

  std::vector<std::string> results;

 private:
  Lowering& lowering_;
  const Node& node_;
  std::vector<std::string> operands_;
};

class Lowering {
 public:
  std::vector<std::string> Inline(const Graph& graph, const std::vector<std::string>& arguments) {
    MW_CHECK(arguments.size() == graph.parameters().size());
    graph::ValueMap<std::string> names;
    for (size_t i = 0; i < arguments.size(); ++i) names[graph.parameters()[i]] = arguments[i];
    const std::vector<bool> live = LiveNodes(graph);
    // Equal nodes over equal operands are one: key → names of the results.
    std::map<std::string, std::vector<std::string>> known;
    for (const auto& node : graph.nodes()) {
      if (!live[node->id()] || node->is_parameter()) continue;
      std::vector<std::string> operands;
      for (const Value& v : node->operands()) operands.push_back(names.at(v));
      std::string key;
      const bool mergeable = node->regions().empty() && ops::DefOf(*node).name() != "custom_call" &&
                             ops::DefOf(*node).name() != "optimization_barrier";
      if (mergeable) {
        key = fmt::format("{}({}){}", node->op_name(), fmt::join(operands, ","),
                          node->attrs().ToString());
      }
      std::vector<std::string> results;
      if (auto it = known.find(key); mergeable && it != known.end()) {
        results = it->second;
      } else {
        Context context(*this, *node, std::move(operands));
        ops::DefOf(*node).Lower(context);
        results = std::move(context.results);
        if (mergeable) known.emplace(std::move(key), results);
      }
      for (int r = 0; r < node->num_results(); ++r) {
        MW_CHECK_MSG(!results[r].empty(), std::string(node->op_name()));
        names[node->result(r)] = results[r];
      }
    }
    std::vector<std::string> outputs;
    for (const Value& v : graph.outputs()) outputs.push_back(names.at(v));
    return outputs;
  }

  stablehlo::Writer writer;
};

stablehlo::Writer& Context::writer() { return lowering_.writer; }

std::vector<std::string> Context::Inline(const Graph& region,
                                         const std::vector<std::string>& arguments) {
  return lowering_.Inline(region, arguments);
}

}  // namespace

std::string LowerToStableHlo(const Graph& graph, const std::string& module_name,
                             int64_t num_partitions) {
  Lowering lowering;
  stablehlo::Writer& w = lowering.writer;
  std::vector<std::string> arguments, signature;
  std::vector<TensorType> result_types;
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    arguments.push_back(fmt::format("%arg{}", i));
    std::string text =
        fmt::format("{}: {}", arguments.back(), stablehlo::TypeText(graph.parameters()[i].type()));
    const int output = graph.parameter_infos()[i].donated_to_output;
    if (output >= 0) text += fmt::format(" {{tf.aliasing_output = {} : i32}}", output);
    signature.push_back(std::move(text));
  }
  for (const Value& v : graph.outputs()) {
    MW_CHECK_MSG(v.type().spec.IsReplicated(), "sharded value in a program for one device");
    result_types.push_back(v.type());
  }
  w.Line(num_partitions == 1
             ? fmt::format("module @{} {{", module_name)
             : fmt::format("module @{} attributes {{mhlo.num_partitions = {} : i32, "
                           "mhlo.num_replicas = 1 : i32}} {{",
                           module_name, num_partitions));
  w.Indent();
  w.Line(fmt::format("func.func public @main({}) -> {} {{", fmt::join(signature, ", "),
                     stablehlo::TypeList(result_types)));
  w.Indent();
  const std::vector<std::string> outputs = lowering.Inline(graph, arguments);
  std::vector<std::string> types;
  for (const TensorType& t : result_types) types.push_back(stablehlo::TypeText(t));
  w.Line(outputs.empty()
             ? "return"
             : fmt::format("return {} : {}", fmt::join(outputs, ", "), fmt::join(types, ", ")));
  w.Dedent();
  w.Line("}");
  w.Dedent();
  w.Line("}");
  return w.text();
}

}  // namespace mw::compile
