#include "meshwright/spmd/propagate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "meshwright/ops/add.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/optimization_barrier.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/ops/scan.h"
#include "meshwright/spmd/factors.h"
#include "meshwright/spmd/pinned_spec.h"

namespace mw::spmd {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueMap;
using ops::ShardingRule;
using Axes = std::vector<std::string>;

PartitionSpec DropDim(const PartitionSpec& spec) {
  PartitionSpec slice = spec;
  if (!slice.dims.empty()) slice.dims.erase(slice.dims.begin());
  return slice;
}

bool IsSplat(const Node& node) {
  return node.op_name() == "constant" &&
         node.attrs().Get<std::vector<double>>("values").size() == 1;
}

// What stands for a value of the old graph.
struct Entry {
  enum class Kind {
    kPlaced,  // `value`, of the new graph
    kLazy,    // made when it is asked for: constants and broadcasts
    kOuter,   // `outer`, of the graph around
    kZero,    // zeros of the old value's type, whatever spec is asked for
  };
  Kind kind = Kind::kPlaced;
  Value value;
  Value outer;
};

class Walk {
 public:
  Walk(Graph& dst, const PropagateOptions& options, Walk* outer)
      : dst_(dst), options_(options), outer_(outer), backward_(outer && outer->backward_) {}

  void Bind(Value old, Entry entry) { entries_[old] = entry; }
  void BindPlaced(Value old, Value value, bool weight) {
    entries_[old] = {Entry::Kind::kPlaced, value, {}};
    if (weight) weights_.insert({value, true});
  }

  // `wanted` holds what outputs want of the values that lead to them.
  void Run(const Graph& src, const ValueMap<PartitionSpec>& wanted) {
    wanted_ = &wanted;
    for (const auto& node : src.nodes()) {
      if (node->is_parameter()) continue;
      const std::string saved = dst_.scope();
      const bool was_backward = backward_;
      dst_.set_scope(node->scope());
      backward_ = backward_ || graph::IsBackwardScope(node->scope());
      Place(*node);
      backward_ = was_backward;
      dst_.set_scope(saved);
    }
  }

  OperandState State(Value old) {
    const Entry& entry = entries_.at(old);
    OperandState state;
    switch (entry.kind) {
      case Entry::Kind::kPlaced:
        state.spec = entry.value.type().spec;
        state.weight = weights_.contains(entry.value);
        return state;
      case Entry::Kind::kOuter:
        return outer_->State(entry.outer);
      case Entry::Kind::kZero:
        state.flexible = state.zero = true;
        return state;
      case Entry::Kind::kLazy:
        return LazyState(*old.node);
    }
    return state;
  }

  // The value of the new graph with exactly `spec`.
  Value Get(Value old, const PartitionSpec& wanted) {
    const PartitionSpec spec = Canonical(wanted, options_.mesh);
    const Entry entry = entries_.at(old);
    if (entry.kind == Entry::Kind::kPlaced) return Redistribute(entry.value, spec);
    if (entry.kind == Entry::Kind::kOuter) return dst_.Import(outer_->Get(entry.outer, spec));
    const auto key = std::make_pair(old, spec.ToString());
    if (auto found = made_.find(key); found != made_.end()) return found->second;
    const Value made = entry.kind == Entry::Kind::kZero ? Zeros(old.type(), spec) : Make(old, spec);
    made_.emplace(key, made);
    return made;
  }

  // With the spec that it has anyway.
  Value Natural(Value old) {
    const OperandState state = State(old);
    return Get(old, state.spec);
  }

 private:
  struct KeyHash {
    size_t operator()(const std::pair<Value, std::string>& key) const {
      return graph::ValueHash()(key.first) ^ std::hash<std::string>()(key.second);
    }
  };

  // --- values made on demand

  OperandState LazyState(const Node& node) {
    OperandState state;
    if (node.operands().empty()) {
      state.flexible = true;
      state.zero = IsSplat(node) && node.attrs().Get<std::vector<double>>("values")[0] == 0;
      return state;
    }
    std::vector<OperandState> operands;
    state.flexible = state.weight = true;
    for (const Value& v : node.operands()) {
      operands.push_back(State(v));
      state.flexible = state.flexible && operands.back().flexible;
      state.weight = state.weight && (operands.back().weight || operands.back().flexible);
    }
    if (state.flexible) state.weight = false;
    const ShardingRule rule = ops::DefOf(node).Sharding(node);
    state.zero = rule.linearity == ShardingRule::Linearity::kSum && operands[0].zero &&
                 rule.linear.size() == static_cast<size_t>(node.num_operands()) &&
                 std::ranges::all_of(operands, [](const OperandState& o) { return o.zero; });
    if (!state.flexible) state.spec = PlaceNode(node, operands, options_.mesh).results[0];
    return state;
  }

  // Whether a node is only made where it is used.
  bool IsLazy(const Node& node, const std::vector<OperandState>& operands) const {
    if (!node.regions().empty() || node.num_results() != 1) return false;
    const ShardingRule::Kind kind = ops::DefOf(node).Sharding(node).kind;
    if (kind == ShardingRule::Kind::kCreation) return true;
    const bool flexible = std::ranges::all_of(operands, [](const auto& o) { return o.flexible; });
    if (node.op_name() == "broadcast_in_dim") return true;
    return flexible && kind == ShardingRule::Kind::kElementwise;
  }

  Value Zeros(const TensorType& type, const PartitionSpec& spec) {
    const Value value = ops::Full(dst_, type.dtype, type.dims, 0);
    dst_.SetSpec(value, spec);
    return value;
  }

  Value Make(Value old, const PartitionSpec& spec) {
    const Node& node = *old.node;
    // Only a sum's parts may be zeros; anything else is made whole and masked.
    PartitionSpec direct = spec;
    if (const OperandState state = LazyState(node); !state.zero) {
      std::erase_if(direct.unreduced, [&](const std::string& axis) {
        return std::ranges::find(state.spec.unreduced, axis) == state.spec.unreduced.end();
      });
    }
    if (node.op_name() == "constant" && !IsSplat(node)) direct = {};
    if (!(direct == spec)) return Redistribute(Get(old, direct), spec);
    std::vector<Value> operands;
    const std::vector<PartitionSpec> specs = OperandSpecs(node, spec);
    for (int i = 0; i < node.num_operands(); ++i)
      operands.push_back(Get(node.operand(i), specs[i]));
    const std::string saved = dst_.scope();
    dst_.set_scope(node.scope());
    Node* copy = dst_.AddNode(node.op(), std::move(operands), node.attrs());
    dst_.set_scope(saved);
    dst_.SetSpec(copy->result(), spec);
    MarkWeight(*copy);
    return copy->result();
  }

  // What the operands of an elementwise node or a broadcast need for the result to
  // have `spec`.
  static std::vector<PartitionSpec> OperandSpecs(const Node& node, const PartitionSpec& spec) {
    std::vector<PartitionSpec> specs;
    const ShardingRule rule = ops::DefOf(node).Sharding(node);
    for (int i = 0; i < node.num_operands(); ++i) {
      PartitionSpec operand;
      if (rule.kind == ShardingRule::Kind::kElementwise) {
        operand = spec;
      } else {
        for (const char letter : rule.operands[i]) {
          const size_t d = rule.results[0].find(letter);
          operand.dims.push_back(letter != '1' && d < spec.dims.size() ? spec.dims[d] : Axes());
        }
        operand.unreduced = spec.unreduced;
      }
      specs.push_back(std::move(operand));
    }
    return specs;
  }

  // --- redistribution

  Value Redistribute(Value v, const PartitionSpec& spec) {
    if (v.type().spec == spec) return v;
    const auto key = std::make_pair(v, (backward_ ? "b" : "f") + spec.ToString());
    if (auto found = made_.find(key); found != made_.end()) return found->second;
    // What the forward pass gathered and the backward pass gathers again stands behind a
    // barrier, or the compiler would make one of the two and keep it in between.
    Value from = v;
    if (backward_ && made_.contains(std::make_pair(v, "f" + spec.ToString()))) {
      from = ops::OptimizationBarrier({v})[0];
      dst_.SetSpec(from, v.type().spec);
    }
    const Value result = ops::Reshard(from, spec);
    dst_.SetSpec(result, spec);
    if (weights_.contains(v)) weights_.insert({result, true});
    made_.emplace(key, result);
    return result;
  }

  void MarkWeight(Node& node) {
    bool weight = node.num_operands() > 0;
    for (const Value& v : node.operands()) weight = weight && weights_.contains(v);
    for (int r = 0; weight && r < node.num_results(); ++r) weights_.insert({node.result(r), true});
  }

  // --- nodes

  void Place(Node& node) {
    if (node.op_name() == "scan") return PlaceScan(node);
    if (node.op_name() == "remat") return PlaceRemat(node);
    if (node.op_name() == "constrain" || node.op_name() == "reshard") {
      return Pin(node, PinnedSpec(node, options_));
    }
    if (node.op_name() == "optimization_barrier") {
      std::vector<Value> operands;
      for (const Value& v : node.operands()) operands.push_back(Natural(v));
      std::vector<PartitionSpec> specs;
      for (const Value& v : operands) specs.push_back(v.type().spec);
      return Append(node, operands, specs);
    }
    std::vector<OperandState> states;
    for (const Value& v : node.operands()) states.push_back(State(v));
    if (IsLazy(node, states)) {
      entries_[node.result()] = {Entry::Kind::kLazy, {}, {}};
      return;
    }
    if (node.op_name() == "scatter_add_rows") return PlaceScatter(node, states);
    if (node.op_name() == "add") KeepPartialSum(node, states);
    const Placement placement = PlaceNode(node, states, options_.mesh);
    std::vector<Value> operands;
    for (int i = 0; i < node.num_operands(); ++i) {
      operands.push_back(Get(node.operand(i), placement.operands[i]));
    }
    Append(node, operands, placement.results);
  }

  // Where the sum is wanted unreduced and one operand is so, the other one becomes it too,
  // which only masks it; else the first would be reduced, as an accumulator is to which
  // whole gradients are added.
  void KeepPartialSum(Node& node, std::vector<OperandState>& states) const {
    const auto wanted = wanted_->find(node.result());
    if (wanted == wanted_->end()) return;
    for (const std::string& axis : wanted->second.unreduced) {
      const auto has = [&](const Axes& axes) {
        return std::ranges::find(axes, axis) != axes.end();
      };
      if (std::ranges::none_of(states, [&](const auto& s) { return has(s.spec.unreduced); })) {
        continue;
      }
      for (OperandState& state : states) {
        if (state.flexible || has(state.spec.unreduced) ||
            std::ranges::any_of(state.spec.dims, has)) {
          continue;
        }
        state.spec.unreduced.push_back(axis);
        state.spec = Canonical(state.spec, options_.mesh);
      }
    }
  }

  void Append(Node& node, std::vector<Value> operands, const std::vector<PartitionSpec>& specs) {
    Node* copy = dst_.AddNode(node.op(), std::move(operands), node.attrs());
    MarkWeight(*copy);
    for (int r = 0; r < node.num_results(); ++r) {
      dst_.SetSpec(copy->result(r), Canonical(specs[r], options_.mesh));
      entries_[node.result(r)] = {Entry::Kind::kPlaced, copy->result(r), {}};
    }
  }

  void Pin(Node& node, const PartitionSpec& spec) {
    const Value v = Get(node.operand(0), spec);
    entries_[node.result()] = {Entry::Kind::kPlaced, v, {}};
  }

  // Adds the rows into zeros where what they are added to is no partial sum, and adds
  // that to the sum, rather than gathering it.
  void PlaceScatter(Node& node, std::vector<OperandState> states) {
    const OperandState target = states[0];
    if (target.zero) {
      if (const auto it = wanted_->find(node.result()); it != wanted_->end()) {
        states[0].spec.dims = it->second.dims;
        states[0].flexible = false;
        states[0].weight = true;  // the updates come first
      }
    } else {
      states[0].weight = true;
    }
    const Placement placement = PlaceNode(node, states, options_.mesh);
    const Value ids = Get(node.operand(1), placement.operands[1]);
    const Value updates = Get(node.operand(2), placement.operands[2]);
    if (target.zero || target.spec == placement.operands[0]) {
      return Append(node, {Get(node.operand(0), placement.operands[0]), ids, updates},
                    placement.results);
    }
    const Value zeros = Zeros(node.types()[0], placement.operands[0]);
    Node* rows = dst_.AddNode(node.op(), {zeros, ids, updates}, node.attrs());
    dst_.SetSpec(rows->result(), placement.results[0]);
    const Value added = Redistribute(rows->result(), target.spec);
    const Value sum = ops::Add(Get(node.operand(0), target.spec), added);
    dst_.SetSpec(sum, target.spec);
    entries_[node.result()] = {Entry::Kind::kPlaced, sum, {}};
  }

  void PlaceRemat(Node& node) {
    const Graph& body = *node.regions()[0];
    for (size_t p = 0; p < body.parameters().size(); ++p) {
      entries_[body.parameters()[p]] = entries_.at(node.operand(static_cast<int>(p)));
      if (entries_.at(node.operand(static_cast<int>(p))).kind == Entry::Kind::kLazy) {
        BindPlaced(body.parameters()[p], Natural(node.operand(static_cast<int>(p))), false);
      }
    }
    const auto* const wanted = wanted_;
    Run(body, {});
    wanted_ = wanted;
    for (int r = 0; r < node.num_results(); ++r) {
      const Value out = body.outputs()[r];
      entries_[node.result(r)] = {Entry::Kind::kPlaced, Natural(out), {}};
    }
  }

  struct Body {
    std::unique_ptr<Graph> graph;
    std::unique_ptr<Walk> walk;
  };

  // The body with carries of `carry` specs (nullopt: zeros of any spec).
  Body WalkBody(Node& node, const std::vector<std::optional<PartitionSpec>>& carry,
                const std::vector<PartitionSpec>& xs, const ValueMap<PartitionSpec>& wanted) {
    const ops::ScanLayout layout(node);
    const Graph& src = *node.regions()[0];
    Body body;
    body.graph = std::make_unique<Graph>(&dst_);
    body.walk = std::make_unique<Walk>(*body.graph, options_, this);
    for (int p = 0; p < layout.num_carry + layout.num_xs; ++p) {
      const Value old = src.parameters()[p];
      const Value value = body.graph->AddParameter(TensorType(old.dtype(), old.dims()),
                                                   src.parameter_infos()[p].name);
      if (layout.is_carry(p) && !carry[p]) {
        body.walk->Bind(old, {Entry::Kind::kZero, {}, {}});
        continue;
      }
      body.graph->SetSpec(value, layout.is_carry(p) ? *carry[p] : xs[p - layout.num_carry]);
      const bool weight = layout.is_x(p) && State(node.operand(p)).weight;
      body.walk->BindPlaced(old, value, weight);
    }
    for (int c = 0; c < layout.num_captures; ++c) {
      const int p = layout.num_carry + layout.num_xs + c;
      body.walk->Bind(src.parameters()[p],
                      {Entry::Kind::kOuter, {}, node.operand(layout.operand_of(p))});
    }
    body.walk->Run(src, wanted);
    return body;
  }

  void PlaceScan(Node& node) {
    const ops::ScanLayout layout(node);
    const Graph& src = *node.regions()[0];

    // Stacked dims stay whole.
    std::vector<PartitionSpec> stacked, slices;
    for (int i = 0; i < layout.num_xs; ++i) {
      PartitionSpec spec = State(node.operand(layout.num_carry + i)).spec;
      if (!spec.dims.empty()) spec.dims[0].clear();
      stacked.push_back(Canonical(spec, options_.mesh));
      slices.push_back(Canonical(DropDim(spec), options_.mesh));
    }
    // What the body's outputs are wanted as: sinks decide for themselves.
    std::vector<std::optional<PartitionSpec>> ys(static_cast<size_t>(layout.num_ys()));
    std::vector<PartitionSpec> sink_specs(static_cast<size_t>(layout.num_sinks));
    ValueMap<PartitionSpec> wanted;
    for (int k = 0; k < layout.num_ys(); ++k) {
      std::optional<PartitionSpec> spec;
      if (layout.y_sinks[k] >= 0) {
        spec = State(node.operand(layout.sink_operand(k))).spec;
      } else if (auto it = wanted_->find(node.result(layout.num_carry + k)); it != wanted_->end()) {
        spec = it->second;
      }
      if (!spec) continue;
      if (!spec->dims.empty()) spec->dims[0].clear();
      if (layout.y_sinks[k] >= 0) sink_specs[layout.y_sinks[k]] = Canonical(*spec, options_.mesh);
      ys[k] = Canonical(DropDim(*spec), options_.mesh);
      wanted[src.outputs()[layout.num_carry + k]] = *ys[k];
    }

    std::vector<std::optional<PartitionSpec>> carry;
    for (int c = 0; c < layout.num_carry; ++c) {
      const OperandState state = State(node.operand(c));
      carry.push_back(state.flexible && state.zero ? std::nullopt : std::optional(state.spec));
    }
    Body body;
    // Each round either settles the carries or takes axes out of `unreduced`.
    for (bool settled = false; !settled;) {
      body = WalkBody(node, carry, slices, wanted);
      settled = true;
      for (int c = 0; c < layout.num_carry; ++c) {
        const OperandState out = body.walk->State(src.outputs()[c]);
        if (!carry[c]) {
          carry[c] = out.flexible ? PartitionSpec() : Canonical(out.spec, options_.mesh);
          settled = false;
          continue;
        }
        Axes common;
        for (const std::string& axis : carry[c]->unreduced) {
          if (out.zero || std::ranges::find(out.spec.unreduced, axis) != out.spec.unreduced.end()) {
            common.push_back(axis);
          }
        }
        if (common.size() != carry[c]->unreduced.size()) {
          carry[c]->unreduced = common;
          settled = false;
        }
      }
    }

    std::vector<Value> outputs;
    for (int c = 0; c < layout.num_carry; ++c) {
      outputs.push_back(body.walk->Get(src.outputs()[c], *carry[c]));
    }
    for (int k = 0; k < layout.num_ys(); ++k) {
      const Value old = src.outputs()[layout.num_carry + k];
      outputs.push_back(ys[k] ? body.walk->Get(old, *ys[k]) : body.walk->Natural(old));
    }
    body.graph->SetOutputs(outputs);

    std::vector<Value> operands;
    for (int c = 0; c < layout.num_carry; ++c) operands.push_back(Get(node.operand(c), *carry[c]));
    for (int i = 0; i < layout.num_xs; ++i) {
      operands.push_back(Get(node.operand(layout.num_carry + i), stacked[i]));
    }
    for (int s = 0; s < layout.num_sinks; ++s) {
      operands.push_back(Get(node.operand(layout.num_carry + layout.num_xs + s), sink_specs[s]));
    }
    for (const auto& [outer, inner] : body.graph->captures()) operands.push_back(outer);
    std::vector<PartitionSpec> specs;
    for (int c = 0; c < layout.num_carry; ++c) specs.push_back(*carry[c]);
    for (int k = 0; k < layout.num_ys(); ++k) {
      specs.push_back(StackedSpec(outputs[layout.num_carry + k].type().spec));
    }
    std::vector<std::unique_ptr<Graph>> regions;
    regions.push_back(std::move(body.graph));
    Node* copy = dst_.AddNode(node.op(), std::move(operands), node.attrs(), std::move(regions));
    for (int r = 0; r < node.num_results(); ++r) {
      dst_.SetSpec(copy->result(r), Canonical(specs[r], options_.mesh));
      entries_[node.result(r)] = {Entry::Kind::kPlaced, copy->result(r), {}};
    }
  }

  Graph& dst_;
  const PropagateOptions& options_;
  Walk* outer_;
  bool backward_;
  ValueMap<Entry> entries_;
  ValueMap<bool> weights_;  // values of the new graph
  // (old value made on demand or new value redistributed, spec) → value.
  std::unordered_map<std::pair<Value, std::string>, Value, KeyHash> made_;
  const ValueMap<PartitionSpec>* wanted_ = nullptr;
};

// What outputs and reshards want of the values that lead to them by sums and the like.
ValueMap<PartitionSpec> WantedOf(const Graph& graph, const PropagateOptions& options,
                                 const std::vector<PartitionSpec>& outputs) {
  ValueMap<PartitionSpec> wanted;
  for (size_t i = 0; i < outputs.size(); ++i) wanted.emplace(graph.outputs()[i], outputs[i]);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    Node& node = *graph.nodes()[i];
    if (node.num_results() != 1) continue;
    if (node.op_name() == "reshard") {
      wanted.emplace(node.operand(0), Canonical(PinnedSpec(node, options), options.mesh));
      continue;
    }
    const auto it = wanted.find(node.result());
    if (it == wanted.end()) continue;
    const std::string_view op = node.op_name();
    if (op != "add" && op != "sub" && op != "neg" && op != "convert" && op != "name" &&
        op != "stop_gradient") {
      continue;
    }
    const PartitionSpec spec = it->second;
    for (const Value& v : node.operands()) wanted.emplace(v, spec);
  }
  return wanted;
}

}  // namespace

std::unique_ptr<Graph> Propagate(const Graph& graph, const PropagateOptions& options) {
  MW_CHECK(options.inputs.size() == graph.parameters().size());
  MW_CHECK(options.outputs.size() == graph.outputs().size());
  MW_CHECK(options.weights.size() == graph.parameters().size());
  const auto check = [&](const std::string& name, TensorType type, const PartitionSpec& spec) {
    type.spec = spec;
    const absl::Status status = CheckSpec(name, type, options.mesh);
    if (!status.ok()) {
      throw GraphError(status.code(), "partition", std::string(status.message()), "");
    }
  };
  auto dst = std::make_unique<Graph>();
  Walk walk(*dst, options, nullptr);
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    const Value old = graph.parameters()[i];
    const std::string& name = graph.parameter_infos()[i].name;
    check(name, old.type(), options.inputs[i]);
    TensorType type(old.dtype(), old.dims());
    type.spec = Canonical(options.inputs[i], options.mesh);
    walk.BindPlaced(old, dst->AddParameter(type, name), options.weights[i]);
  }
  std::vector<PartitionSpec> outputs;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const std::string& name = graph.output_names()[i];
    check(name.empty() ? fmt::format("output {}", i) : name, graph.outputs()[i].type(),
          options.outputs[i]);
    outputs.push_back(Canonical(options.outputs[i], options.mesh));
  }
  const ValueMap<PartitionSpec> wanted = WantedOf(graph, options, outputs);
  walk.Run(graph, wanted);
  std::vector<Value> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(walk.Get(graph.outputs()[i], outputs[i]));
  }
  dst->SetOutputs(std::move(results), graph.output_names());
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    const int output = graph.parameter_infos()[i].donated_to_output;
    if (output >= 0) dst->Donate(static_cast<int>(i), output);
  }
  return dst;
}

void VerifySpecs(const Graph& graph, const Mesh& mesh) {
  for (const auto& node : graph.nodes()) {
    for (const auto& region : node->regions()) VerifySpecs(*region, mesh);
    const std::string_view op = node->op_name();
    if (node->is_parameter() || !node->regions().empty() || op == "reshard" ||
        op == "optimization_barrier" || node->num_operands() == 0) {
      continue;
    }
    VerifyPlacement(*node, mesh);
  }
}

}  // namespace mw::spmd
