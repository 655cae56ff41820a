#include "meshwright/compile/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>
#include <vector>

#include "meshwright/compile/native_layout.h"
#include "meshwright/graph/live_nodes.h"
#include "meshwright/ops/op_def.h"

namespace mw::compile {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

class Lowering;

class Context final : public ops::LowerContext {
 public:
  Context(Lowering& lowering, const Node& node, std::vector<std::string> operands)
      : lowering_(lowering), node_(node), operands_(std::move(operands)) {
    results.resize(static_cast<size_t>(node.num_results()));
  }
  stablehlo::Writer& writer() override;
  const ops::Target& target() override;
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
  // `annotations`: null for a program that is partitioned.
  Lowering(const ops::Target& target, const ShardyAnnotations* annotations, bool locations)
      : target(target), annotations_(annotations), locations_(locations) {}

  std::vector<std::string> Inline(const Graph& graph, const std::vector<std::string>& arguments) {
    MW_CHECK(arguments.size() == graph.parameters().size());
    graph::ValueMap<std::string> names;
    for (size_t i = 0; i < arguments.size(); ++i) names[graph.parameters()[i]] = arguments[i];
    const std::vector<bool> live = graph::LiveNodes(graph);
    // Equal nodes over equal operands are one: key → names of the results.
    std::map<std::string, std::vector<std::string>> known;
    for (const auto& node : graph.nodes()) {
      if (!live[node->id()] || node->is_parameter()) continue;
      std::vector<std::string> operands;
      for (const Value& v : node->operands()) operands.push_back(names.at(v));
      std::string key;
      // Two equal collectives are two on purpose: one that gathers for both passes would
      // keep what it gathered alive between them.
      const bool mergeable = node->regions().empty() && !node->attrs().Has("group_size") &&
                             ops::DefOf(*node).name() != "custom_call" &&
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
        const std::string around = writer.location();
        if (locations_) writer.set_location(LocationOf(*node));
        if (annotations_ != nullptr && IsPin(*node)) {
          LowerPin(context);
        } else {
          ops::DefOf(*node).Lower(context);
        }
        writer.set_location(around);
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
  const ops::Target& target;

 private:
  static std::string LocationOf(const Node& node) {
    return node.scope().empty() ? std::string(node.op_name())
                                : fmt::format("{}/{}", node.scope(), node.op_name());
  }
  static bool IsPin(const Node& node) {
    return node.op_name() == "constrain" || node.op_name() == "reshard";
  }
  void LowerPin(Context& context) {
    const TensorType& type = context.node().types()[0];
    context.Set(0, writer.Assign(
                       fmt::format("sdy.sharding_constraint {} {} : {}", context.operand(0),
                                   ShardingText(annotations_->pinned(context.node()), type.rank()),
                                   stablehlo::TypeText(type))));
  }

  const ShardyAnnotations* annotations_;
  bool locations_;
};

stablehlo::Writer& Context::writer() { return lowering_.writer; }
const ops::Target& Context::target() { return lowering_.target; }

std::vector<std::string> Context::Inline(const Graph& region,
                                         const std::vector<std::string>& arguments) {
  return lowering_.Inline(region, arguments);
}

std::string Lower(const Graph& graph, const std::string& module_name, int64_t num_partitions,
                  const ops::Target& target, const ShardyAnnotations* annotations, bool locations,
                  const NativeArrays& native = {}) {
  Lowering lowering(target, annotations, locations);
  stablehlo::Writer& w = lowering.writer;
  const auto sharding = [](const PartitionSpec& spec, const TensorType& type) {
    return "sdy.sharding = #sdy.sharding" + ShardingText(spec, type.rank());
  };
  // Adds the layout of array `i` where it is one of `which`.
  const auto add_layout = [&](const std::vector<bool>& which, size_t i, const TensorType& type,
                              std::vector<std::string>* attributes) {
    if (i >= which.size() || !which[i]) return;
    const std::string layout = NativeLayout(target, type);
    if (!layout.empty()) attributes->push_back(fmt::format("mhlo.layout_mode = \"{}\"", layout));
  };
  std::vector<std::string> arguments, signature, types, results;
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    const TensorType& type = graph.parameters()[i].type();
    arguments.push_back(fmt::format("%arg{}", i));
    std::vector<std::string> attributes;
    if (annotations != nullptr) attributes.push_back(sharding(annotations->inputs[i], type));
    const int output = graph.parameter_infos()[i].donated_to_output;
    if (output >= 0) attributes.push_back(fmt::format("tf.aliasing_output = {} : i32", output));
    add_layout(native.inputs, i, type, &attributes);
    signature.push_back(fmt::format("{}: {}", arguments.back(), stablehlo::TypeText(type)));
    if (!attributes.empty()) {
      signature.back() += fmt::format(" {{{}}}", fmt::join(attributes, ", "));
    }
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const TensorType& type = graph.outputs()[i].type();
    MW_CHECK_MSG(type.spec.IsReplicated(), "sharded value in a program for one device");
    types.push_back(stablehlo::TypeText(type));
    results.push_back(types.back());
    std::vector<std::string> attributes;
    if (annotations != nullptr) attributes.push_back(sharding(annotations->outputs[i], type));
    add_layout(native.outputs, i, type, &attributes);
    if (!attributes.empty()) {
      results.back() += fmt::format(" {{{}}}", fmt::join(attributes, ", "));
    }
  }
  w.Line(num_partitions == 1
             ? fmt::format("module @{} {{", module_name)
             : fmt::format("module @{} attributes {{mhlo.num_partitions = {} : i32, "
                           "mhlo.num_replicas = 1 : i32}} {{",
                           module_name, num_partitions));
  w.Indent();
  if (annotations != nullptr) w.Line(MeshText(annotations->mesh));
  w.Line(fmt::format("func.func public @main({}) -> ({}) {{", fmt::join(signature, ", "),
                     fmt::join(results, ", ")));
  w.Indent();
  const std::vector<std::string> outputs = lowering.Inline(graph, arguments);
  w.Line(outputs.empty()
             ? "return"
             : fmt::format("return {} : {}", fmt::join(outputs, ", "), fmt::join(types, ", ")));
  w.Dedent();
  w.Line("}");
  w.Dedent();
  w.Line("}");
  return w.text();
}

}  // namespace

std::string LowerToStableHlo(const Graph& graph, const std::string& module_name,
                             int64_t num_partitions, const ops::Target& target, bool locations,
                             const NativeArrays& native) {
  return Lower(graph, module_name, num_partitions, target, nullptr, locations, native);
}

std::string LowerToShardy(const Graph& graph, const std::string& module_name,
                          const ShardyAnnotations& annotations, bool locations) {
  // The compiler cannot divide a kernel.
  return Lower(graph, module_name, annotations.mesh.num_devices(), ops::Target(), &annotations,
               locations);
}

}  // namespace mw::compile
