#include "meshwright/autodiff/join_scans.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "meshwright/graph/clone.h"
#include "meshwright/ops/scan.h"

namespace mw::autodiff {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueMap;

// Copies two bodies into a graph; what the second has in common with the first is not copied again.
// Repetitions within one body stay: what a barrier keeps apart may be there to save memory.
class SharedCopy {
 public:
  explicit SharedCopy(Graph& dst) : dst_(dst) {}

  // Copies `src` with its parameters replaced by `arguments`; returns its outputs.
  std::vector<Value> AddFirst(const Graph& src, const std::vector<Value>& arguments) {
    return Add(src, arguments, [&](const Node& node, std::vector<Value> operands) {
      Node* const copy = graph::CloneNode(dst_, node, std::move(operands));
      if (CanShare(node)) of_first_[&node.op()].push_back(copy);
      return copy;
    });
  }

  // The same, with nodes of the first where they compute the same.
  std::vector<Value> AddSecond(const Graph& src, const std::vector<Value>& arguments) {
    return Add(src, arguments, [&](const Node& node, std::vector<Value> operands) {
      for (Node* copy : of_first_[&node.op()]) {
        if (copy->operands() != operands || !(copy->attrs() == node.attrs())) continue;
        if (node.op_name() == "dot_general") shares_product_ = true;
        return copy;
      }
      return graph::CloneNode(dst_, node, std::move(operands));
    });
  }

  // Whether a product of the second was one of the first.
  bool shares_product() const { return shares_product_; }

 private:
  static bool CanShare(const Node& node) {
    return node.regions().empty() && node.op_name() != "optimization_barrier";
  }

  template <typename CopyNode>
  std::vector<Value> Add(const Graph& src, const std::vector<Value>& arguments,
                         const CopyNode& copy_node) {
    ValueMap<Value> map;
    for (size_t p = 0; p < arguments.size(); ++p) map[src.parameters()[p]] = arguments[p];
    const auto lookup = [&](const std::vector<Value>& values) {
      std::vector<Value> found;
      for (const Value& v : values) found.push_back(map.at(v));
      return found;
    };
    for (const auto& node : src.nodes()) {
      if (node->is_parameter()) continue;
      Node* const copy = copy_node(*node, lookup(node->operands()));
      for (int r = 0; r < node->num_results(); ++r) map[node->result(r)] = copy->result(r);
    }
    return lookup(src.outputs());
  }

  Graph& dst_;
  std::map<const graph::Op*, std::vector<Node*>> of_first_;
  bool shares_product_ = false;
};

// The operands of a scan by their part in it.
struct Operands {
  explicit Operands(const Node& node) : layout(node) {
    const auto begin = node.operands().begin();
    const auto xs_at = begin + layout.num_carry, sinks_at = xs_at + layout.num_xs,
               captures_at = sinks_at + layout.num_sinks;
    init.assign(begin, xs_at);
    xs.assign(xs_at, sinks_at);
    sinks.assign(sinks_at, captures_at);
    captures.assign(captures_at, node.operands().end());
  }

  ops::ScanLayout layout;
  std::vector<Value> init, xs, sinks, captures;
};

// Where `v` is in `values`, to which it is added if it is not there.
size_t PlaceOf(Value v, std::vector<Value>* values) {
  const auto found = std::ranges::find(*values, v);
  const auto place = static_cast<size_t>(found - values->begin());
  if (found == values->end()) values->push_back(v);
  return place;
}

// The scan that does what `first` and `second` do. Operands are of the graph they are in.
struct Joined {
  std::vector<Value> operands;
  graph::Attributes attrs;
  std::unique_ptr<Graph> body;
  int first_result = 0;  // of `first`: after those of `second`
};

// nullopt where their bodies have no product in common.
std::optional<Joined> Join(const Node& first, const Node& second) {
  const Operands a(first), b(second);
  Joined joined;
  std::vector<Value> xs = b.xs, captures = b.captures;
  std::vector<size_t> a_xs, a_captures;
  for (const Value& v : a.xs) a_xs.push_back(PlaceOf(v, &xs));
  for (const Value& v : a.captures) a_captures.push_back(PlaceOf(v, &captures));

  joined.body = std::make_unique<Graph>();
  const Graph &a_body = *first.regions()[0], &b_body = *second.regions()[0];
  // Of the types that the bodies take: those of slices.
  std::vector<Value> carry, x, capture;
  const auto types_of = [](const Graph& body, size_t at) { return body.parameters()[at].type(); };
  for (size_t i = 0; i < b.init.size(); ++i) {
    carry.push_back(joined.body->AddParameter(types_of(b_body, i), "carry"));
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    TensorType slice(xs[i].dtype(), Dims(xs[i].dims().begin() + 1, xs[i].dims().end()));
    x.push_back(joined.body->AddParameter(std::move(slice), "x"));
  }
  for (const Value& v : captures) {
    capture.push_back(joined.body->AddParameter(TensorType(v.dtype(), v.dims()), "capture"));
  }
  std::vector<Value> a_arguments, b_arguments = carry;
  for (const size_t place : a_xs) a_arguments.push_back(x[place]);
  for (const size_t place : a_captures) a_arguments.push_back(capture[place]);
  b_arguments.insert(b_arguments.end(), x.begin(), x.begin() + b.layout.num_xs);
  b_arguments.insert(b_arguments.end(), capture.begin(), capture.begin() + b.layout.num_captures);

  SharedCopy copy(*joined.body);
  const std::vector<Value> a_outputs = copy.AddFirst(a_body, a_arguments);
  std::vector<Value> outputs = copy.AddSecond(b_body, b_arguments);
  if (!copy.shares_product()) return std::nullopt;
  outputs.insert(outputs.end(), a_outputs.begin(), a_outputs.end());
  joined.body->SetOutputs(outputs);

  joined.operands = b.init;
  for (const std::vector<Value>* part :
       std::initializer_list<const std::vector<Value>*>{&xs, &b.sinks, &captures}) {
    joined.operands.insert(joined.operands.end(), part->begin(), part->end());
  }
  joined.attrs = second.attrs();
  joined.attrs.Set("num_xs", static_cast<int64_t>(xs.size()));
  std::vector<int64_t> y_sinks = b.layout.y_sinks;
  y_sinks.resize(y_sinks.size() + a_outputs.size(), -1);
  joined.attrs.Set("y_sinks", std::move(y_sinks));
  joined.first_result = second.num_results();
  return joined;
}

// By node id, whether a node is `from` or needs a result of it.
std::vector<bool> Dependents(const Graph& graph, const Node& from) {
  std::vector<bool> depends(graph.nodes().size());
  depends[static_cast<size_t>(from.id())] = true;
  for (const auto& node : graph.nodes()) {
    for (const Value& v : node->operands()) {
      if (depends[static_cast<size_t>(v.node->id())])
        depends[static_cast<size_t>(node->id())] = true;
    }
  }
  return depends;
}

// A copy of `graph` with the first pair of scans that can be joined; null where there is none.
std::unique_ptr<Graph> JoinOnce(const Graph& graph) {
  for (const auto& first : graph.nodes()) {
    if (first->op_name() != "scan") continue;
    const ops::ScanLayout layout(*first);
    if (layout.num_carry > 0 || layout.num_sinks > 0) continue;
    const std::vector<bool> later = Dependents(graph, *first);
    for (const auto& second : graph.nodes()) {
      if (second->id() <= first->id() || second->op_name() != "scan") continue;
      if (later[static_cast<size_t>(second->id())]) continue;
      if (ops::ScanLayout(*second).length != layout.length) continue;
      std::optional<Joined> joined = Join(*first, *second);
      if (!joined) continue;

      auto dst = std::make_unique<Graph>();
      ValueMap<Value> map;
      const auto lookup = [&](const std::vector<Value>& values) {
        std::vector<Value> found;
        for (const Value& v : values) found.push_back(map.at(v));
        return found;
      };
      const std::vector<Value> parameters = graph::AddParametersLike(*dst, graph);
      for (size_t p = 0; p < parameters.size(); ++p) map[graph.parameters()[p]] = parameters[p];
      // What needs the first scan comes after the second.
      for (const bool dependents : {false, true}) {
        for (const auto& node : graph.nodes()) {
          if (node->is_parameter() || node == first) continue;
          if (later[static_cast<size_t>(node->id())] != dependents) continue;
          if (node != second) {
            Node* const copy = graph::CloneNode(*dst, *node, lookup(node->operands()));
            for (int r = 0; r < node->num_results(); ++r) map[node->result(r)] = copy->result(r);
            continue;
          }
          std::vector<std::unique_ptr<Graph>> regions;
          regions.push_back(std::move(joined->body));
          dst->set_scope(second->scope());
          Node* const scan = dst->AddNode(second->op(), lookup(joined->operands), joined->attrs,
                                          std::move(regions));
          dst->set_scope("");
          for (int r = 0; r < second->num_results(); ++r) map[second->result(r)] = scan->result(r);
          for (int r = 0; r < first->num_results(); ++r) {
            map[first->result(r)] = scan->result(joined->first_result + r);
          }
        }
      }
      graph::SetOutputsLike(*dst, graph, lookup(graph.outputs()));
      return dst;
    }
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Graph> JoinScans(const Graph& graph) {
  std::unique_ptr<Graph> joined = graph::CloneGraph(graph);
  while (std::unique_ptr<Graph> next = JoinOnce(*joined)) joined = std::move(next);
  return joined;
}

}  // namespace mw::autodiff
