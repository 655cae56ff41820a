#include "meshwright/graph/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace mw::graph {
namespace {

// Stands for a graph's input; its type is set by AddParameter.
class ParameterOp final : public Op {
 public:
  std::string_view name() const override { return "parameter"; }
  std::vector<TensorType> InferTypes(const Node& node) const override { return node.types(); }
};

const ParameterOp& Parameter() {
  static const ParameterOp* const op = new ParameterOp();
  return *op;
}

bool Encloses(const Graph* outer, const Graph* inner) {
  for (const Graph* g = inner; g != nullptr; g = g->parent()) {
    if (g == outer) return true;
  }
  return false;
}

std::string ValueName(const Value& v) {
  std::string name = fmt::format("%{}", v.node->id());
  if (v.node->num_results() > 1) name += fmt::format("#{}", v.index);
  return name;
}

std::string Names(const std::vector<Value>& values) {
  std::vector<std::string> names;
  names.reserve(values.size());
  for (const Value& v : values) names.push_back(ValueName(v));
  return fmt::format("{}", fmt::join(names, ", "));
}

void Print(const Graph& graph, int indent, std::string* out) {
  const std::string pad(indent, ' ');
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    const Value p = graph.parameters()[i];
    const ParameterInfo& info = graph.parameter_infos()[i];
    *out += fmt::format("{}{} = parameter \"{}\" : {}", pad, ValueName(p), info.name,
                        p.type().ToString());
    if (info.donated_to_output >= 0) {
      *out += fmt::format(" donated to output {}", info.donated_to_output);
    }
    *out += "\n";
  }
  for (const auto& node : graph.nodes()) {
    if (node->is_parameter()) continue;
    std::vector<std::string> types;
    for (const TensorType& t : node->types()) types.push_back(t.ToString());
    const std::string attrs = node->attrs().ToString();
    *out += fmt::format("{}%{} = {}({}){}{} : {}", pad, node->id(), node->op_name(),
                        Names(node->operands()), attrs.empty() ? "" : " ", attrs,
                        fmt::join(types, ", "));
    if (!node->scope().empty()) *out += fmt::format("  // {}", node->scope());
    *out += "\n";
    for (const auto& region : node->regions()) {
      *out += pad + "{\n";
      Print(*region, indent + 2, out);
      *out += pad + "}\n";
    }
  }
  *out += fmt::format("{}return {}\n", pad, Names(graph.outputs()));
}

}  // namespace

const TensorType& Value::type() const {
  MW_CHECK_MSG(node != nullptr, "null value");
  return node->types()[index];
}

int64_t Value::dim(int d) const {
  const Dims& sizes = dims();
  const int i = d < 0 ? d + static_cast<int>(sizes.size()) : d;
  MW_CHECK(i >= 0 && i < static_cast<int>(sizes.size()));
  return sizes[i];
}

Graph& Value::graph() const {
  MW_CHECK_MSG(node != nullptr, "null value");
  return node->graph();
}

bool Node::is_parameter() const { return op_ == &Parameter(); }

void Node::Fail(const std::string& message, SourceLocation where) const {
  throw GraphError(absl::StatusCode::kInvalidArgument, std::string(op_name()), message, scope_,
                   where);
}

Graph::Graph(Graph* parent) : parent_(parent), scope_(parent ? parent->scope() : "") {}

Value Graph::AddParameter(TensorType type, std::string name) {
  auto node = std::make_unique<Node>();
  node->id_ = static_cast<int>(nodes_.size());
  node->op_ = &Parameter();
  node->graph_ = this;
  node->types_ = {std::move(type)};
  node->scope_ = scope_;
  Value v{node.get(), 0};
  nodes_.push_back(std::move(node));
  parameters_.push_back(v);
  parameter_infos_.push_back({std::move(name), -1});
  return v;
}

Node* Graph::AddNode(const Op& op, std::vector<Value> operands, Attributes attrs,
                     std::vector<std::unique_ptr<Graph>> regions) {
  for (Value& v : operands) v = Import(v);
  auto node = std::make_unique<Node>();
  node->id_ = static_cast<int>(nodes_.size());
  node->op_ = &op;
  node->graph_ = this;
  node->operands_ = std::move(operands);
  node->attrs_ = std::move(attrs);
  node->regions_ = std::move(regions);
  node->scope_ = scope_;
  node->types_ = op.InferTypes(*node);
  for (TensorType& type : node->types_) type.spec = {};
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

void Graph::SetSpec(Value v, PartitionSpec spec) {
  MW_CHECK(&v.graph() == this);
  v.node->types_[v.index].spec = std::move(spec);
}

void Graph::SetOutputs(std::vector<Value> outputs, std::vector<std::string> names) {
  MW_CHECK(names.empty() || names.size() == outputs.size());
  for (Value& v : outputs) v = Import(v);
  outputs_ = std::move(outputs);
  output_names_ = std::move(names);
  output_names_.resize(outputs_.size());
}

void Graph::Donate(int parameter, int output) {
  const TensorType& from = parameters_.at(parameter).type();
  const TensorType& to = outputs_.at(output).type();
  if (from != to) {
    throw GraphError(
        absl::StatusCode::kInvalidArgument, "donate",
        fmt::format("parameter {} is {} but output {} is {}: a donated buffer needs "
                    "one type",
                    parameter_infos_[parameter].name, from.ToString(), output, to.ToString()));
  }
  parameter_infos_[parameter].donated_to_output = output;
}

Value Graph::Import(Value v) {
  MW_CHECK_MSG(v.node != nullptr, "null value");
  if (&v.graph() == this) return v;
  MW_CHECK_MSG(parent_ != nullptr && Encloses(&v.graph(), this),
               "operand belongs to a graph that does not enclose this one");
  v = parent_->Import(v);
  for (const auto& [outer, inner] : captures_) {
    if (outer == v) return inner;
  }
  Value inner = AddParameter(v.type(), fmt::format("capture{}", captures_.size()));
  captures_.emplace_back(v, inner);
  return inner;
}

std::string Graph::ToString() const {
  std::string out;
  Print(*this, 0, &out);
  return out;
}

void Graph::Verify() const {
  auto fail = [](const Node* node, const std::string& message) {
    throw GraphError(absl::StatusCode::kInternal, node ? std::string(node->op_name()) : "graph",
                     message, node ? node->scope() : "");
  };
  auto check_value = [&](const Node* user, const Value& v, int before) {
    if (v.node == nullptr || &v.node->graph() != this || v.node->id() >= before ||
        v.index >= v.node->num_results()) {
      fail(user, "operand is not an earlier value of the same graph");
    }
  };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    if (node.id() != static_cast<int>(i)) fail(&node, "node ids are not in order");
    for (const Value& v : node.operands()) check_value(&node, v, node.id());
    if (!node.is_parameter()) {
      const std::vector<TensorType> types = node.op().InferTypes(node);
      bool same = types.size() == node.types().size();
      for (size_t r = 0; same && r < types.size(); ++r) {
        same = types[r].dtype == node.types()[r].dtype && types[r].dims == node.types()[r].dims;
      }
      if (!same) fail(&node, "result types differ from the shape rule");
    }
    for (const auto& region : node.regions()) region->Verify();
  }
  for (const Value& v : outputs_) check_value(nullptr, v, static_cast<int>(nodes_.size()));
}

std::string BackwardScope(const std::string& scope) {
  if (IsBackwardScope(scope)) return scope;
  return scope.empty() ? "backward" : "backward/" + scope;
}

bool IsBackwardScope(const std::string& scope) {
  return scope == "backward" || scope.starts_with("backward/");
}

Scope::Scope(Graph& graph, std::string_view name) : graph_(graph), saved_(graph.scope()) {
  graph_.set_scope(saved_.empty() ? std::string(name) : fmt::format("{}/{}", saved_, name));
}

Graph& CommonGraph(const std::vector<Value>& operands) {
  MW_CHECK(!operands.empty());
  Graph* innermost = &operands[0].graph();
  for (const Value& v : operands) {
    if (Encloses(innermost, &v.graph())) innermost = &v.graph();
  }
  return *innermost;
}

Value Apply(const Op& op, const std::vector<Value>& operands, Attributes attrs) {
  return CommonGraph(operands).AddNode(op, operands, std::move(attrs))->result();
}

}  // namespace mw::graph
