// Graph: a program as typed values in single-assignment form.
#ifndef MESHWRIGHT_GRAPH_GRAPH_H_
#define MESHWRIGHT_GRAPH_GRAPH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/base/source_location.h"
#include "meshwright/core/graph_error.h"
#include "meshwright/core/tensor_type.h"
#include "meshwright/graph/attributes.h"

namespace mw::graph {

class Graph;
class Node;

// The identity of an operation and its shape rule. ops::OpDef adds the rest
// (differentiation, lowering, sharding); graph algorithms need no more than this.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::string_view name() const = 0;

  // Types of the results of `node`, whose operands, attributes and regions are
  // set. Throws through node.Fail when the operands do not fit.
  virtual std::vector<TensorType> InferTypes(const Node& node) const = 0;
};

// One result of a node. Cheap to copy; null when default-constructed.
struct Value {
  Node* node = nullptr;
  int index = 0;

  explicit operator bool() const { return node != nullptr; }
  const TensorType& type() const;
  DType dtype() const { return type().dtype; }
  const Dims& dims() const { return type().dims; }
  // Size of dimension `d`; negative counts from the end.
  int64_t dim(int d) const;
  int rank() const { return type().rank(); }
  Graph& graph() const;

  friend bool operator==(const Value&, const Value&) = default;
};

struct ValueHash {
  size_t operator()(const Value& v) const {
    return std::hash<const void*>()(v.node) * 31 + static_cast<size_t>(v.index);
  }
};
template <typename T>
using ValueMap = std::unordered_map<Value, T, ValueHash>;

// One operation. Owned by its graph; nodes are in topological order there.
class Node {
 public:
  int id() const { return id_; }
  const Op& op() const { return *op_; }
  std::string_view op_name() const { return op_->name(); }
  Graph& graph() const { return *graph_; }
  const std::vector<Value>& operands() const { return operands_; }
  Value operand(int i) const { return operands_[i]; }
  int num_operands() const { return static_cast<int>(operands_.size()); }
  const Attributes& attrs() const { return attrs_; }
  const std::vector<std::unique_ptr<Graph>>& regions() const { return regions_; }
  const std::vector<TensorType>& types() const { return types_; }
  int num_results() const { return static_cast<int>(types_.size()); }
  Value result(int i = 0) { return Value{this, i}; }
  // Where the model was when it built this node, e.g. "layers/attention".
  const std::string& scope() const { return scope_; }
  bool is_parameter() const;

  // Throws GraphError(kInvalidArgument) with this op's name and scope.
  [[noreturn]] void Fail(const std::string& message,
                         SourceLocation where = SourceLocation::Current()) const;

 private:
  friend class Graph;
  int id_ = 0;
  const Op* op_ = nullptr;
  Graph* graph_ = nullptr;
  std::vector<Value> operands_;
  Attributes attrs_;
  std::vector<std::unique_ptr<Graph>> regions_;
  std::vector<TensorType> types_;
  std::string scope_;
};

// What a graph's parameter is called and whether its buffer may be reused.
struct ParameterInfo {
  std::string name;
  // The output that takes over this parameter's buffer, or -1.
  int donated_to_output = -1;
};

// A graph owns its nodes. A graph with a parent is the body of a region op
// (scan, remat): when a node of it takes an operand of an enclosing graph, the
// value is captured as one more parameter (see captures()).
class Graph {
 public:
  Graph() = default;
  explicit Graph(Graph* parent);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Value AddParameter(TensorType type, std::string name);
  // Appends a node. Operands from enclosing graphs are captured. Throws GraphError
  // when the op's shape rule refuses the operands.
  Node* AddNode(const Op& op, std::vector<Value> operands, Attributes attrs = {},
                std::vector<std::unique_ptr<Graph>> regions = {});

  // Says how a value of this graph lies on the mesh; nodes start replicated. What
  // is right is the partitioner's matter: shape rules know nothing of it.
  void SetSpec(Value v, PartitionSpec spec);

  void SetOutputs(std::vector<Value> outputs, std::vector<std::string> names = {});
  // Lets output `output` reuse the buffer of parameter `parameter`. Throws when
  // their types differ.
  void Donate(int parameter, int output);

  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  const std::vector<Value>& parameters() const { return parameters_; }
  const std::vector<ParameterInfo>& parameter_infos() const { return parameter_infos_; }
  const std::vector<Value>& outputs() const { return outputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  Graph* parent() const { return parent_; }

  // (outer value, the parameter that stands for it here), in parameter order;
  // captured parameters come after the explicit ones.
  const std::vector<std::pair<Value, Value>>& captures() const { return captures_; }

  // `v` itself when it belongs to this graph, else its capture.
  // REQUIRES: `v` belongs to this graph or one that encloses it.
  Value Import(Value v);

  // The current scope path; see Scope.
  const std::string& scope() const { return scope_; }
  void set_scope(std::string scope) { scope_ = std::move(scope); }

  // Readable text, one node a line, regions indented.
  std::string ToString() const;

  // Checks what every pass may rely on: operands precede their users and belong
  // to this graph, types are what the shape rules say, outputs are set.
  // Throws GraphError(kInternal).
  void Verify() const;

 private:
  Graph* parent_ = nullptr;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Value> parameters_;
  std::vector<ParameterInfo> parameter_infos_;
  std::vector<Value> outputs_;
  std::vector<std::string> output_names_;
  std::vector<std::pair<Value, Value>> captures_;
  std::string scope_;
};

// The scope of what belongs to the gradient of nodes in `scope`: "backward/…".
std::string BackwardScope(const std::string& scope);
bool IsBackwardScope(const std::string& scope);

// RAII: appends `/name` to the scope path of nodes built meanwhile.
class Scope {
 public:
  Scope(Graph& graph, std::string_view name);
  // The scope of the graph that `v` belongs to.
  Scope(Value v, std::string_view name) : Scope(v.graph(), name) {}
  ~Scope() { graph_.set_scope(std::move(saved_)); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Graph& graph_;
  std::string saved_;
};

// The graph that a node over `operands` belongs to: the innermost of theirs.
// REQUIRES: at least one operand; the graphs enclose one another.
Graph& CommonGraph(const std::vector<Value>& operands);

// Appends a one-result node to CommonGraph(operands).
Value Apply(const Op& op, const std::vector<Value>& operands, Attributes attrs = {});

}  // namespace mw::graph

#endif  // MESHWRIGHT_GRAPH_GRAPH_H_
