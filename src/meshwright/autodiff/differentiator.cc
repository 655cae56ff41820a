#include "meshwright/autodiff/differentiator.h"

#include <fmt/format.h>

#include <utility>

#include "meshwright/autodiff/split_region.h"
#include "meshwright/graph/clone.h"
#include "meshwright/ops/add.h"

namespace mw::autodiff {

using graph::Graph;
using graph::Node;
using graph::Value;

std::vector<std::vector<bool>> ActiveResults(const Graph& graph, const std::vector<bool>& active) {
  MW_CHECK(active.size() == graph.parameters().size());
  std::vector<std::vector<bool>> results(graph.nodes().size());
  for (size_t p = 0; p < active.size(); ++p) {
    const Value v = graph.parameters()[p];
    results[v.node->id()] = {active[p] && IsFloat(v.dtype())};
  }
  for (const auto& node : graph.nodes()) {
    if (node->is_parameter()) continue;
    bool any = false;
    if (ops::DefOf(*node).differentiable()) {
      for (const Value& v : node->operands()) any = any || results[v.node->id()][v.index];
    }
    for (int r = 0; r < node->num_results(); ++r) {
      results[node->id()].push_back(any && IsFloat(node->types()[r].dtype));
    }
  }
  return results;
}

// The forward pass of one node.
class Differentiator::ForwardContext final : public ops::VjpForwardContext {
 public:
  ForwardContext(Differentiator& d, const Node& node) : d_(d), node_(node) {}
  Graph& graph() override { return d_.dst_; }
  const Node& node() override { return node_; }
  Value operand(int i) override { return d_.forward_.at(node_.operand(i)); }
  bool active(int i) override { return d_.IsActive(node_.operand(i)); }
  std::vector<bool> ActiveOutputs(const Graph& body, const std::vector<bool>& active) override {
    const auto results = ActiveResults(body, active);
    std::vector<bool> outputs;
    for (const Value& v : body.outputs()) outputs.push_back(results[v.node->id()][v.index]);
    return outputs;
  }
  ops::RegionSplit Split(const Graph& body, const std::vector<bool>& wanted,
                         const std::vector<bool>& active_outputs,
                         const std::string& policy) override {
    return SplitRegion(body, wanted, active_outputs, policy);
  }
  std::any& saved() override { return d_.saved_[node_.id()]; }

 private:
  Differentiator& d_;
  const Node& node_;
};

// The reverse pass of one node.
class Differentiator::BackwardContext final : public ops::VjpContext {
 public:
  BackwardContext(Differentiator& d, const Node& node) : d_(d), node_(node) {}
  Graph& graph() override { return d_.dst_; }
  const Node& node() override { return node_; }
  Value operand(int i) override { return d_.forward_.at(node_.operand(i)); }
  Value result(int i) override { return d_.forward_.at(Result(i)); }
  bool wants(int i) override { return d_.IsActive(node_.operand(i)); }
  std::optional<Value> cotangent(int i) override {
    auto it = d_.cotangents_.find(Result(i));
    if (it == d_.cotangents_.end()) return std::nullopt;
    return it->second;
  }
  void Add(int i, Value v) override {
    if (wants(i)) d_.AddCotangent(node_.operand(i), v);
  }
  std::optional<Value> TakeSink(int i, bool in_loop) override {
    return d_.TakeSink(node_.operand(i), in_loop);
  }
  void AddSummed(int i, Value sum) override { d_.AddSummed(node_.operand(i), sum); }
  std::any& saved() override { return d_.saved_[node_.id()]; }

 private:
  Value Result(int i) const { return Value{const_cast<Node*>(&node_), i}; }

  Differentiator& d_;
  const Node& node_;
};

Differentiator::Differentiator(Graph& dst, const Graph& src, std::vector<Value> arguments,
                               const std::vector<bool>& active, Accumulate accumulate)
    : dst_(dst),
      src_(src),
      arguments_(std::move(arguments)),
      active_(ActiveResults(src, active)),
      saved_(src.nodes().size()),
      accumulate_(accumulate),
      sums_(src.parameters().size()),
      taken_(src.parameters().size()) {
  MW_CHECK(arguments_.size() == src.parameters().size());
}

void Differentiator::SetSink(int p, Value accumulator) {
  const TensorType& type = src_.parameters().at(p).type();
  if (accumulator.dims() != type.dims) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "gradient",
                     fmt::format("accumulator {} does not have the dims of parameter {} {}",
                                 accumulator.type().ToString(), src_.parameter_infos()[p].name,
                                 type.ToString()));
  }
  sums_[p] = accumulator;
}

int Differentiator::ParameterIndex(Value v) const {
  if (!v.node->is_parameter()) return -1;
  for (size_t p = 0; p < src_.parameters().size(); ++p) {
    if (src_.parameters()[p] == v) return static_cast<int>(p);
  }
  return -1;
}

std::vector<Value> Differentiator::Forward() {
  for (size_t p = 0; p < arguments_.size(); ++p) forward_[src_.parameters()[p]] = arguments_[p];
  for (const auto& node : src_.nodes()) {
    if (node->is_parameter()) continue;
    bool active = false;
    for (const bool flag : active_[node->id()]) active = active || flag;
    std::vector<Value> results;
    const std::string saved_scope = dst_.scope();
    dst_.set_scope(node->scope());
    if (active) {
      for (const Value& v : node->operands()) ++active_uses_[v];
      ForwardContext ctx(*this, *node);
      results = ops::DefOf(*node).VjpForward(ctx);
    } else {
      std::vector<Value> operands;
      for (const Value& v : node->operands()) operands.push_back(forward_.at(v));
      Node* copy = graph::CloneNode(dst_, *node, std::move(operands));
      for (int r = 0; r < copy->num_results(); ++r) results.push_back(copy->result(r));
    }
    dst_.set_scope(saved_scope);
    for (int r = 0; r < node->num_results(); ++r) forward_[node->result(r)] = results[r];
  }
  std::vector<Value> outputs;
  for (const Value& v : src_.outputs()) outputs.push_back(forward_.at(v));
  return outputs;
}

void Differentiator::AddCotangent(Value v, Value cotangent) {
  MW_CHECK_MSG(cotangent.dtype() == v.dtype() && cotangent.dims() == v.dims(),
               fmt::format("cotangent {} of a value {} ({})", cotangent.type().ToString(),
                           v.type().ToString(), v.node->op_name()));
  auto [it, inserted] = cotangents_.emplace(v, cotangent);
  if (!inserted) it->second = ops::Add(it->second, cotangent);
}

std::optional<Value> Differentiator::TakeSink(Value v, bool in_loop) {
  const int p = ParameterIndex(v);
  if (p < 0 || taken_[p]) return std::nullopt;
  const bool each_use = accumulate_ == Accumulate::kEachUse;
  if (!each_use && (in_loop || active_uses_.at(v) > 1)) return std::nullopt;
  Value sum = sums_[p];
  if (!sum && each_use) {
    if (auto earlier = cotangents_.extract(v)) sum = earlier.mapped();
  }
  if (!sum) return std::nullopt;
  taken_[p] = true;
  return sum;
}

void Differentiator::AddSummed(Value v, Value sum) {
  const int p = ParameterIndex(v);
  MW_CHECK(taken_[p]);
  taken_[p] = false;
  if (sums_[p]) {
    sums_[p] = sum;
  } else {
    AddCotangent(v, sum);
  }
}

void Differentiator::Backward(const std::vector<Value>& cotangents) {
  MW_CHECK(cotangents.size() == src_.outputs().size());
  for (size_t i = 0; i < cotangents.size(); ++i) {
    // An output that nothing active leads to takes its cotangent nowhere.
    if (cotangents[i] && IsActive(src_.outputs()[i])) {
      AddCotangent(src_.outputs()[i], cotangents[i]);
    }
  }
  for (size_t i = src_.nodes().size(); i-- > 0;) {
    Node& node = *src_.nodes()[i];
    if (node.is_parameter()) continue;
    bool reached = false;
    for (int r = 0; r < node.num_results(); ++r) {
      reached = reached || cotangents_.contains(node.result(r));
    }
    if (!reached) continue;
    const std::string saved_scope = dst_.scope();
    dst_.set_scope(graph::BackwardScope(node.scope()));
    BackwardContext ctx(*this, node);
    ops::DefOf(node).Vjp(ctx);
    dst_.set_scope(saved_scope);
  }
}

Value Differentiator::ParameterCotangent(int p) const {
  auto it = cotangents_.find(src_.parameters()[p]);
  return it == cotangents_.end() ? Value() : it->second;
}

}  // namespace mw::autodiff
