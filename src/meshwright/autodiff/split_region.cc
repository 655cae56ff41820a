#include "meshwright/autodiff/split_region.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "meshwright/autodiff/differentiator.h"
#include "meshwright/core/remat_policy.h"
#include "meshwright/graph/clone.h"
#include "meshwright/ops/constant.h"

namespace mw::autodiff {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

// Decides which forward values the backward part gets as residuals.
class ResidualChooser {
 public:
  // `depends` marks nodes of the joint graph that depend on a cotangent.
  ResidualChooser(const Graph& body, const Graph& joint, const std::vector<bool>& depends,
                  const std::string& policy)
      : depends_(depends), policy_(policy), names_(RematPolicyNames(policy)) {
    if (policy != "none" && policy != "full" && !policy.starts_with("names:")) {
      throw GraphError(
          absl::StatusCode::kInvalidArgument, "remat",
          fmt::format("unknown policy \"{}\"; known are none, full, names:a,b", policy));
    }
    for (size_t p = 0; p < body.parameters().size(); ++p) {
      parameter_index_[joint.parameters()[p]] = static_cast<int>(p);
    }
  }

  // Goes back from `v`, which `reader` takes; null: it is an output of the backward part.
  void Visit(Value v, const Node* reader = nullptr) {
    readers_[v].insert(reader);
    if (!seen_.emplace(v, true).second) return;
    if (v.node->is_parameter()) {
      auto it = parameter_index_.find(v);
      if (it != parameter_index_.end()) inputs.push_back(it->second);
      return;
    }
    if (!depends_[v.node->id()]) {
      std::vector<Value> chain = {v};
      while (!Keep(*chain.back().node) && IsIdentity(*chain.back().node)) {
        chain.push_back(chain.back().node->operand(0));
      }
      if (Keep(*chain.back().node)) {
        std::reverse(chain.begin(), chain.end());
        Read(std::move(chain));
        return;
      }
    }
    for (const Value& operand : v.node->operands()) Visit(operand, v.node);
  }

  // Has an elementwise value kept in place of values of twice its size or more that only it is
  // recomputed from: the sum of two products for both. Forgets what was visited.
  void Merge() {
    std::vector<Value> recomputed;
    for (const auto& [v, unused] : seen_) {
      if (IsRecomputed(*v.node)) recomputed.push_back(v);
    }
    std::ranges::sort(recomputed, {}, [](const Value& v) { return v.node->id(); });
    for (const Value& v : recomputed) {
      if (BytesKeptFor(*v.node) >= 2 * v.type().num_bytes()) merged_.insert(v.node);
    }
    inputs.clear();
    kept_.clear();
    seen_.clear();
    readers_.clear();
  }

  // One for each kept value: of the identities over it the last that all readers share,
  // so that what is stored is already as `constrain` pins it.
  std::vector<Value> Residuals() const {
    std::vector<Value> residuals;
    for (const Kept& kept : kept_) residuals.push_back(kept.chain.back());
    return residuals;
  }

  std::vector<int> inputs;

 private:
  bool Keep(const Node& node) const {
    if (node.is_parameter()) return false;
    if (merged_.contains(&node)) return true;
    if (policy_ == "none") return !ops::DefOf(node).cheap_to_recompute();
    if (policy_ == "full" || node.op_name() != "name") return false;
    return std::find(names_.begin(), names_.end(), node.attrs().String("name")) != names_.end();
  }
  static bool IsIdentity(const Node& node) {
    return node.op_name() == "name" || node.op_name() == "constrain" ||
           node.op_name() == "materialize";
  }

  // Whether the backward part has an elementwise `node` of its own.
  bool IsRecomputed(const Node& node) const {
    return !node.is_parameter() && !depends_[node.id()] && !Keep(node) && !IsIdentity(node) &&
           ops::DefOf(node).Sharding(node).kind == ops::ShardingRule::Kind::kElementwise;
  }

  // The bytes of what is kept for `node` alone.
  int64_t BytesKeptFor(const Node& node) const {
    int64_t bytes = 0;
    for (auto at = node.operands().begin(); at != node.operands().end(); ++at) {
      if (std::find(node.operands().begin(), at, *at) != at) continue;
      if (readers_.at(*at).size() > 1) continue;
      const auto kept =
          std::ranges::find_if(kept_, [&](const Kept& k) { return k.chain.back() == *at; });
      if (merged_.contains(at->node) || (kept != kept_.end() && kept->num_reads == 1)) {
        bytes += at->type().num_bytes();
      } else if (IsRecomputed(*at->node)) {
        bytes += BytesKeptFor(*at->node);
      }
    }
    return bytes;
  }

  // Notes that the backward part reads the end of `chain`: a kept value, then
  // identities one over the other.
  void Read(std::vector<Value> chain) {
    const auto known =
        std::ranges::find_if(kept_, [&](const Kept& k) { return k.chain[0] == chain[0]; });
    if (known == kept_.end()) {
      kept_.push_back({std::move(chain)});
      return;
    }
    const auto shared = std::ranges::mismatch(known->chain, chain).in1;
    known->chain.erase(shared, known->chain.end());
    ++known->num_reads;
  }

  struct Kept {
    std::vector<Value> chain;
    int num_reads = 1;
  };

  std::vector<Kept> kept_;
  std::set<const Node*> merged_;
  const std::vector<bool>& depends_;
  std::string policy_;
  std::vector<std::string> names_;
  graph::ValueMap<int> parameter_index_;
  graph::ValueMap<bool> seen_;
  graph::ValueMap<std::set<const Node*>> readers_;
};

}  // namespace

ops::RegionSplit SplitRegion(const Graph& body, const std::vector<bool>& wanted,
                             const std::vector<bool>& active_outputs, const std::string& policy) {
  Graph joint;
  std::vector<Value> parameters;
  for (size_t p = 0; p < body.parameters().size(); ++p) {
    parameters.push_back(
        joint.AddParameter(body.parameters()[p].type(), body.parameter_infos()[p].name));
  }
  Differentiator d(joint, body, parameters, wanted);
  std::vector<Value> outputs = d.Forward();

  ops::RegionSplit split;
  std::vector<Value> cotangents(outputs.size());
  std::vector<Value> cotangent_parameters;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!active_outputs[o]) continue;
    cotangents[o] = joint.AddParameter(outputs[o].type(), "cotangent");
    cotangent_parameters.push_back(cotangents[o]);
    split.cotangent_outputs.push_back(static_cast<int>(o));
  }
  d.Backward(cotangents);
  std::vector<Value> gradients;
  for (size_t p = 0; p < wanted.size(); ++p) {
    if (!wanted[p]) continue;
    split.wanted_inputs.push_back(static_cast<int>(p));
    const Value gradient = d.ParameterCotangent(static_cast<int>(p));
    gradients.push_back(
        gradient ? gradient : ops::Full(joint, parameters[p].dtype(), parameters[p].dims(), 0));
  }

  std::vector<bool> depends(joint.nodes().size());
  for (const Value& v : cotangent_parameters) depends[v.node->id()] = true;
  for (const auto& node : joint.nodes()) {
    for (const Value& v : node->operands()) {
      if (depends[v.node->id()]) depends[node->id()] = true;
    }
  }
  ResidualChooser chooser(body, joint, depends, policy);
  for (const Value& v : gradients) chooser.Visit(v);
  if (policy == "none") {
    chooser.Merge();
    for (const Value& v : gradients) chooser.Visit(v);
  }
  const std::vector<Value> residuals = chooser.Residuals();
  std::sort(chooser.inputs.begin(), chooser.inputs.end());
  split.backward_inputs = chooser.inputs;
  split.num_residuals = static_cast<int>(residuals.size());

  std::vector<Value> forward_outputs = outputs;
  forward_outputs.insert(forward_outputs.end(), residuals.begin(), residuals.end());
  split.forward = graph::ExtractGraph(joint, parameters, forward_outputs);

  std::vector<Value> backward_inputs;
  for (int p : split.backward_inputs) backward_inputs.push_back(parameters[p]);
  backward_inputs.insert(backward_inputs.end(), residuals.begin(), residuals.end());
  backward_inputs.insert(backward_inputs.end(), cotangent_parameters.begin(),
                         cotangent_parameters.end());
  split.backward = graph::ExtractGraph(joint, backward_inputs, gradients);
  return split;
}

}  // namespace mw::autodiff
