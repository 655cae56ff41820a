#include "meshwright/spmd/factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/reshape.h"

namespace mw::spmd {
namespace {

using Axes = std::vector<std::string>;
using ops::Node;
using ops::ShardingRule;

bool Contains(const Axes& axes, const std::string& axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

const Axes& DimAxes(const PartitionSpec& spec, size_t dim) {
  static const auto* const none = new Axes();
  return dim < spec.dims.size() ? spec.dims[dim] : *none;
}

// The rule with letters for every kind, so that one algorithm serves all.
ShardingRule Lettered(const Node& node) {
  ShardingRule rule = ops::DefOf(node).Sharding(node);
  if (rule.kind == ShardingRule::Kind::kElementwise) {
    const std::string letters = ops::FactorLetters(node.types()[0].rank());
    rule.operands.assign(static_cast<size_t>(node.num_operands()), letters);
    rule.results.assign(static_cast<size_t>(node.num_results()), letters);
    rule.kind = ShardingRule::Kind::kFactors;
  } else if (rule.kind == ShardingRule::Kind::kReplicated) {
    for (const ops::Value& v : node.operands()) rule.operands.emplace_back(v.rank(), '1');
    for (const TensorType& t : node.types()) rule.results.emplace_back(t.rank(), '1');
    rule.kind = ShardingRule::Kind::kFactors;
  } else if (rule.kind == ShardingRule::Kind::kSpecial && node.op_name() == "reshape") {
    // The sharding of a group of dims follows its outermost dims.
    const Dims& from = node.operand(0).dims();
    const Dims& to = node.types()[0].dims;
    rule = ShardingRule::Factors({std::string(from.size(), '1')}, {std::string(to.size(), '1')})
               .Sum({0});
    char next = 'a';
    for (const ops::ReshapeGroup& group : ops::ReshapeGroups(from, to)) {
      if (group.from.empty() || group.to.empty()) continue;
      rule.operands[0][group.from[0]] = rule.results[0][group.to[0]] = next++;
    }
  }
  MW_CHECK_MSG(rule.kind == ShardingRule::Kind::kFactors, std::string(node.op_name()));
  return rule;
}

// Axes by factor.
class Assignment {
 public:
  Assignment(const ShardingRule& rule, const Node& node, const Mesh& mesh)
      : rule_(rule), mesh_(mesh) {
    // A factor must be divided wherever it stands: a reshape has it in dims of
    // different sizes.
    const auto see = [&](const std::string& letters, const Dims& dims) {
      for (size_t d = 0; d < letters.size(); ++d) {
        if (letters[d] != '1') sizes_[letters[d]].insert(dims[d]);
      }
    };
    for (int i = 0; i < node.num_operands(); ++i) see(rule.operands[i], node.operand(i).dims());
    for (int r = 0; r < node.num_results(); ++r) see(rule.results[r], node.types()[r].dims);
  }

  void Offer(char letter, const Axes& axes) {
    if (letter == '1' || rule_.whole.find(letter) != std::string::npos) return;
    Axes& have = axes_[letter];
    if (!std::equal(
            have.begin(), have.end(), axes.begin(),
            axes.begin() + static_cast<std::ptrdiff_t>(std::min(have.size(), axes.size()))) ||
        axes.size() < have.size()) {
      return;
    }
    for (size_t i = have.size(); i < axes.size(); ++i) {
      if (used_.contains(axes[i])) return;
      Axes longer = have;
      longer.push_back(axes[i]);
      const int64_t parts = mesh_.Size(longer);
      if (std::ranges::any_of(sizes_[letter], [&](int64_t size) { return size % parts != 0; })) {
        return;
      }
      have = std::move(longer);
      used_.insert(axes[i]);
    }
  }

  PartitionSpec Spec(const std::string& letters) const {
    PartitionSpec spec;
    for (const char letter : letters) {
      const auto it = axes_.find(letter);
      spec.dims.push_back(it == axes_.end() ? Axes() : it->second);
    }
    return spec;
  }

  bool Used(const std::string& axis) const { return used_.contains(axis); }

  // Axes of the factors that no result has.
  std::set<std::string> Summed() const {
    std::set<std::string> axes;
    for (const auto& [letter, list] : axes_) {
      const bool kept = std::ranges::any_of(
          rule_.results, [&](const std::string& r) { return r.find(letter) != std::string::npos; });
      if (!kept) axes.insert(list.begin(), list.end());
    }
    return axes;
  }

 private:
  const ShardingRule& rule_;
  const Mesh& mesh_;
  std::map<char, std::set<int64_t>> sizes_;
  std::map<char, Axes> axes_;
  std::set<std::string> used_;
};

bool UsesInDims(const PartitionSpec& spec, const std::string& axis) {
  return std::ranges::any_of(spec.dims, [&](const Axes& axes) { return Contains(axes, axis); });
}

}  // namespace

Placement PlaceNode(const Node& node, const std::vector<OperandState>& operands, const Mesh& mesh) {
  const ShardingRule rule = Lettered(node);
  std::vector<int> order;
  for (int i = 0; i < node.num_operands(); ++i) {
    if (!operands[i].flexible) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](int a, int b) {
    if (operands[a].weight != operands[b].weight) return operands[b].weight;
    return node.operand(a).type().num_bytes() > node.operand(b).type().num_bytes();
  });
  Assignment assignment(rule, node, mesh);
  for (const int i : order) {
    for (size_t d = 0; d < rule.operands[i].size(); ++d) {
      assignment.Offer(rule.operands[i][d], DimAxes(operands[i].spec, d));
    }
  }

  Placement placement;
  for (const std::string& letters : rule.operands) {
    placement.operands.push_back(assignment.Spec(letters));
  }
  for (const std::string& letters : rule.results) {
    placement.results.push_back(assignment.Spec(letters));
  }
  std::set<std::string> unreduced = assignment.Summed();
  if (rule.reduction != "add") {
    placement.reduce_now.assign(unreduced.begin(), unreduced.end());
    unreduced.clear();
  } else if (rule.linearity == ShardingRule::Linearity::kSum) {
    // What is added up without a summed factor must be a partial sum as well.
    for (const std::string& axis : unreduced) {
      for (const int i : rule.linear) {
        if (!UsesInDims(placement.operands[i], axis))
          placement.operands[i].unreduced.push_back(axis);
      }
    }
  }
  std::set<std::string> candidates;
  for (const int i : rule.linear) {
    candidates.insert(operands[i].spec.unreduced.begin(), operands[i].spec.unreduced.end());
  }
  for (const std::string& axis : candidates) {
    if (assignment.Used(axis)) continue;
    int partial = 0;
    bool all = true;
    for (const int i : rule.linear) {
      const bool is = Contains(operands[i].spec.unreduced, axis);
      partial += is ? 1 : 0;
      all = all && (is || operands[i].zero);
    }
    if (rule.linearity == ShardingRule::Linearity::kSum ? !all : partial != 1) continue;
    unreduced.insert(axis);
    for (const int i : rule.linear) {
      if (rule.linearity == ShardingRule::Linearity::kSum ||
          Contains(operands[i].spec.unreduced, axis)) {
        placement.operands[i].unreduced.push_back(axis);
      }
    }
  }
  for (PartitionSpec& spec : placement.operands) {
    std::ranges::sort(spec.unreduced);
    spec = Canonical(std::move(spec), mesh);
  }
  for (PartitionSpec& spec : placement.results) {
    spec.unreduced.assign(unreduced.begin(), unreduced.end());
    spec = Canonical(std::move(spec), mesh);
  }
  return placement;
}

void VerifyPlacement(const Node& node, const Mesh& mesh) {
  std::vector<OperandState> states;
  for (const ops::Value& v : node.operands()) {
    OperandState state;
    state.spec = v.type().spec;
    states.push_back(std::move(state));
  }
  const Placement placement = PlaceNode(node, states, mesh);
  const auto fail = [&](const char* what, size_t i, const PartitionSpec& has,
                        const PartitionSpec& wants) {
    throw GraphError(absl::StatusCode::kInternal, std::string(node.op_name()),
                     fmt::format("{} {} is laid out as {} but the sharding rule says {}", what, i,
                                 has.ToString(), wants.ToString()),
                     node.scope());
  };
  for (size_t i = 0; i < states.size(); ++i) {
    if (!(states[i].spec == placement.operands[i])) {
      fail("operand", i, states[i].spec, placement.operands[i]);
    }
  }
  const ShardingRule rule = Lettered(node);
  for (size_t r = 0; r < placement.results.size(); ++r) {
    // A dim that no operand has, as in a broadcast, may be cut in any way.
    PartitionSpec spec = placement.results[r];
    spec.dims.resize(rule.results[r].size());
    for (size_t d = 0; d < spec.dims.size(); ++d) {
      const bool free = std::ranges::none_of(rule.operands, [&](const std::string& letters) {
        return letters.find(rule.results[r][d]) != std::string::npos;
      });
      if (free) spec.dims[d] = DimAxes(node.types()[r].spec, d);
    }
    if (!(node.types()[r].spec == spec)) fail("result", r, node.types()[r].spec, spec);
  }
}

}  // namespace mw::spmd
