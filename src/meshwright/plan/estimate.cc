#include "meshwright/plan/estimate.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "meshwright/graph/live_nodes.h"
#include "meshwright/ops/collective.h"
#include "meshwright/ops/op_def.h"
#include "meshwright/ops/scan.h"

namespace mw::plan {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

// What of the peak the kernel for attention reaches, whose pace vector units set; see
// docs/kernels.md.
constexpr double kAttentionEfficiency = 0.2;

bool IsCollective(const Node& node) { return node.attrs().Has("group_size"); }

bool IsElementwise(const Node& node) {
  return ops::DefOf(node).Sharding(node).kind == ops::ShardingRule::Kind::kElementwise;
}

// Made where it is used.
bool IsFused(const Node& node) {
  if (node.is_parameter() || IsCollective(node) || !node.regions().empty()) return false;
  return ops::DefOf(node).cheap_to_recompute() || IsElementwise(node);
}

int64_t Bytes(const Value& v) { return v.type().num_bytes(); }

// Whether a TPU makes bf16 of `v`: float32 that only products of default precision read, gathered
// before or not.
bool IsRounded(const Graph& graph, Value v) {
  if (v.type().dtype != DType::kF32) return false;
  bool is_read = false;
  for (const auto& node : graph.nodes()) {
    if (std::ranges::find(node->operands(), v) == node->operands().end()) continue;
    const std::string_view op = node->op_name();
    if (op == "dot_general") {
      if (node->attrs().String("precision") != "default") return false;
    } else if (op == "all_gather" || op == "reshape" || op == "transpose") {
      if (!IsRounded(graph, node->result(0))) return false;
    } else {
      return false;
    }
    is_read = true;
  }
  return is_read;
}

// Peaks of graphs of one program.
class MemoryWalk {
 public:
  // `rounds`: whether the compiler keeps what IsRounded besides.
  MemoryWalk(bool tpu, bool rounds) : tpu_(tpu), rounds_(rounds) {}

  // The most bytes that are live at a time of values that `graph` makes. Outputs in `placed`
  // are written where they are wanted, and count nothing.
  int64_t Peak(const Graph& graph, const std::vector<bool>& placed) {
    const std::vector<bool> live = graph::LiveNodes(graph);
    const auto& nodes = graph.nodes();
    const auto end = static_cast<int64_t>(nodes.size());
    // The last place at which a value is read, through what is fused or takes over its buffer.
    graph::ValueMap<int64_t> last;
    // Whether it is read there as the buffer that an output or a later value takes over.
    std::set<Value, ByPlace> taken_over;
    graph::ValueMap<std::vector<const Node*>> users;
    const auto extend = [&](Value v, int64_t until) {
      int64_t& known = last.emplace(v, -1).first->second;
      known = std::max(known, until);
    };
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      extend(graph.outputs()[i], end);
      if (i < placed.size() && placed[i]) taken_over.insert(graph.outputs()[i]);
    }
    for (size_t i = nodes.size(); i-- > 0;) {
      Node& node = *nodes[i];
      if (!live[node.id()] || node.is_parameter()) continue;
      int64_t until = static_cast<int64_t>(i);
      if (IsFused(node)) {
        const auto it = last.find(node.result(0));
        if (it != last.end()) until = std::max(until, it->second);
      }
      for (const Value& v : node.operands()) {
        extend(v, until);
        users[v].push_back(&node);
      }
      MarkTakenOver(node, last, taken_over, extend);
    }
    // Bytes that appear and go at each place.
    std::vector<int64_t> change(nodes.size() + 2, 0), inner(nodes.size() + 1, 0);
    for (size_t i = 0; i < nodes.size(); ++i) {
      Node& node = *nodes[i];
      if (!live[node.id()] || node.is_parameter()) continue;
      if (!node.regions().empty()) inner[i] = InnerPeak(node);
      if (tpu_) inner[i] += ScratchBytes(node);
      for (int r = 0; r < node.num_results(); ++r) {
        const Value v = node.result(r);
        const auto it = last.find(v);
        const int64_t until = it == last.end() ? static_cast<int64_t>(i) : it->second;
        // What is fused into an output of its own is a buffer at the end.
        const bool fused = IsFused(node);
        const bool is_output = std::ranges::find(graph.outputs(), v) != graph.outputs().end();
        if (taken_over.contains(v) || (fused && !is_output)) continue;
        const int64_t bytes = StoredBytes(v, users[v]);
        change[fused ? static_cast<size_t>(end) : i] += bytes;
        change[static_cast<size_t>(until) + 1] -= bytes;
      }
    }
    for (const Extra& extra : ExtraBuffers(graph, live)) {
      change[extra.from] += extra.bytes;
      change[extra.until + 1] -= extra.bytes;
    }
    int64_t now = 0, peak = 0;
    for (size_t i = 0; i <= nodes.size(); ++i) {
      now += change[i];
      peak = std::max(peak, now + inner[std::min(i, nodes.size())]);
    }
    return peak;
  }

 private:
  struct ByPlace {
    bool operator()(const Value& a, const Value& b) const {
      return std::pair(a.node->id(), a.index) < std::pair(b.node->id(), b.index);
    }
  };

  // Results that live in a buffer that is there already.
  template <typename Extend>
  void MarkTakenOver(Node& node, const graph::ValueMap<int64_t>& last,
                     std::set<Value, ByPlace>& taken_over, const Extend& extend) {
    const auto end_of = [&](const Value& v) {
      const auto it = last.find(v);
      return it == last.end() ? int64_t{-1} : it->second;
    };
    const auto take = [&](int result, int operand) {
      // Zeros to begin with are no buffer yet.
      if (IsFused(*node.operand(operand).node)) return;
      taken_over.insert(node.result(result));
      extend(node.operand(operand), end_of(node.result(result)));
    };
    if (node.op_name() == "scan") {
      const ops::ScanLayout layout(node);
      for (int c = 0; c < layout.num_carry; ++c) take(c, c);
      for (int k = 0; k < layout.num_ys(); ++k) {
        if (layout.y_sinks[k] >= 0) take(layout.num_carry + k, layout.sink_operand(k));
      }
    } else if (node.op_name() == "scatter_add_rows" || node.op_name() == "optimization_barrier") {
      for (int r = 0; r < node.num_results(); ++r) take(r, r);
    }
  }

  // A buffer that no value of the graph names, by places.
  struct Extra {
    int64_t bytes;
    size_t from, until;
  };

  std::vector<Extra> ExtraBuffers(const Graph& graph, const std::vector<bool>& live) const {
    std::vector<Extra> extras;
    const auto& nodes = graph.nodes();
    // Casts of stacked weights: one serves all loops that read it, and stays from the first to
    // the last.
    graph::ValueMap<size_t> casts;
    // Operands of collectives that are copied because they are the program's, all at a time.
    std::optional<size_t> copies;
    // Parts of gathered weights before they are put in their places: gathers start together, and
    // are all there when the first loop begins.
    std::optional<size_t> parts;
    bool in_loops = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = *nodes[i];
      if (!live[node.id()] || node.is_parameter()) continue;
      if (node.op_name() == "scan") {
        if (parts && !in_loops) extras[*parts].until = i;
        in_loops = true;
        const ops::ScanLayout layout(node);
        const Graph& body = *node.regions()[0];
        for (int p = 0; p < layout.num_parameters(); ++p) {
          if (!layout.is_x(p)) continue;
          const int64_t bytes = CastBytes(body, body.parameters()[p]) * layout.length;
          if (bytes == 0) continue;
          const auto [it, is_new] =
              casts.emplace(node.operand(layout.operand_of(p)), extras.size());
          if (is_new) extras.push_back({bytes, i, i});
          Extra& extra = extras[it->second];
          extra.until = i;
          extra.bytes = std::max(extra.bytes, bytes);
        }
      } else if (tpu_ && node.op_name() == "reduce_scatter" &&
                 (node.operand(0).node->is_parameter() || IsFused(*node.operand(0).node))) {
        if (!copies) {
          copies = extras.size();
          extras.push_back({0, i, i});
        }
        extras[*copies].bytes += Bytes(node.operand(0));
        extras[*copies].until = i;
      } else if (tpu_ && !in_loops && node.op_name() == "all_gather" &&
                 node.attrs().Int("dim") > 0) {
        if (!parts) {
          parts = extras.size();
          extras.push_back({0, i, i});
        }
        extras[*parts].bytes += Bytes(nodes[i]->result(0));
        extras[*parts].until = i;
      }
    }
    return extras;
  }

  // Copies of a table for the unit that gathers and scatters rows.
  static int64_t ScratchBytes(Node& node) {
    if (node.op_name() == "take_rows" && IsCollective(*node.operand(0).node)) {
      return Bytes(node.operand(0));
    }
    if (node.op_name() == "scatter_add_rows") return Bytes(node.result(0));
    return 0;
  }

  int64_t InnerPeak(const Node& node) {
    const Graph& body = *node.regions()[0];
    const std::vector<bool> placed(body.outputs().size(), node.op_name() == "scan");
    return Peak(body, placed);
  }

  // Of a slice of stacked weights that the body only reads as something narrower: that.
  int64_t CastBytes(const Graph& body, Value parameter) const {
    if (rounds_ && IsRounded(body, parameter)) return Bytes(parameter) / 2;
    int64_t bytes = 0;
    for (const auto& node : body.nodes()) {
      for (const Value& v : node->operands()) {
        if (v != parameter) continue;
        const int64_t result = node->types()[0].num_bytes();
        if (node->op_name() != "convert" || result >= Bytes(v)) return 0;
        bytes = result;
      }
    }
    return bytes;
  }

  // What is stored of a value that is only cast is the cast.
  static int64_t StoredBytes(Value v, const std::vector<const Node*>& users) {
    if (users.size() == 1 && users[0]->op_name() == "convert") {
      return std::min(Bytes(v), users[0]->types()[0].num_bytes());
    }
    return Bytes(v);
  }

  bool tpu_;
  bool rounds_;
};

struct Cost {
  double elementwise = 0;  // float32 results
  double flops = 0;
  double compute_ms = 0;
  double transfer_ms = 0;
  double ms = 0;
  double exposed_ms = 0;  // of it, in transfers outside of loops
};

class TimeWalk {
 public:
  explicit TimeWalk(const Target& target) : target_(target) {}

  // One execution of `graph`; `loop`: it is a loop's body, whose transfers go on while it computes,
  // those of weights while the iteration before does.
  Cost Of(const Graph& graph, bool loop) const {
    const std::vector<bool> live = graph::LiveNodes(graph);
    Cost own, inner;
    // What a node has to wait for: the longest chain of transfers, and of transfers and work.
    std::vector<double> sent(graph.nodes().size()), span(graph.nodes().size());
    double longest_sent = 0, longest_span = 0;
    for (const auto& node : graph.nodes()) {
      if (!live[node->id()] || node->is_parameter()) continue;
      const Cost before = own;
      double inside_ms = 0;
      if (node->regions().empty()) {
        Add(graph, *node, &own);
      } else {
        const bool is_scan = node->op_name() == "scan";
        const double n = is_scan ? static_cast<double>(ops::ScanLayout(*node).length) : 1.0;
        Cost body = Of(*node->regions()[0], is_scan || loop);
        if (is_scan) {
          const double slices_ms = SliceMs(*node);
          body.compute_ms += slices_ms;
          body.ms += slices_ms;
        }
        inner.flops += n * body.flops;
        inner.compute_ms += n * body.compute_ms;
        inner.transfer_ms += n * body.transfer_ms;
        inner.ms += n * body.ms;
        inside_ms = n * body.ms;
      }
      double& chain = sent[node->id()];
      double& path = span[node->id()];
      for (const Value& v : node->operands()) {
        chain = std::max(chain, sent[v.node->id()]);
        path = std::max(path, span[v.node->id()]);
      }
      const double transfer_ms = own.transfer_ms - before.transfer_ms;
      chain += transfer_ms;
      path += transfer_ms + own.compute_ms - before.compute_ms + inside_ms;
      longest_sent = std::max(longest_sent, chain);
      longest_span = std::max(longest_span, path);
    }
    // Between products elementwise ops are fused in part only; without any, as in an update, into
    // one pass over what crosses the program.
    if (own.flops > 0 && target_.elementwise_gops > 0) {
      const double elementwise_ms = own.elementwise / (target_.elementwise_gops * 1e6);
      own.compute_ms += elementwise_ms;
      longest_span += elementwise_ms;
    }
    Cost cost;
    cost.flops = own.flops + inner.flops;
    cost.compute_ms = own.compute_ms + inner.compute_ms;
    cost.transfer_ms = own.transfer_ms + inner.transfer_ms;
    const double work = own.compute_ms + inner.ms;
    cost.exposed_ms = loop ? 0 : longest_sent;
    cost.ms = loop ? std::max(work, longest_span) : work + longest_sent;
    return cost;
  }

  // Of bytes that come from or go to memory.
  double MemoryMs(int64_t bytes) const {
    return target_.hbm_gbps > 0 ? static_cast<double>(bytes) / (target_.hbm_gbps * 1e6) : 0;
  }

 private:
  void Add(const Graph& graph, Node& node, Cost* cost) const {
    int64_t bytes = 0;
    for (const Value& v : node.operands()) bytes += Bytes(v);
    for (const TensorType& type : node.types()) bytes += type.num_bytes();
    if (IsCollective(node)) {
      if (target_.link_gbps > 0) {
        const double part = target_.plugin == "tpu" && node.op_name() == "all_gather" &&
                                    IsRounded(graph, node.result(0))
                                ? 0.5
                                : 1;
        cost->transfer_ms +=
            part * static_cast<double>(ops::SentBytes(node)) / (target_.link_gbps * 1e6);
      }
    } else if (node.op_name() == "dot_general") {
      double flops = 2.0 * static_cast<double>(node.types()[0].num_elements());
      for (const int64_t d : node.attrs().Ints("lhs_contract")) {
        flops *= static_cast<double>(node.operand(0).dims()[static_cast<size_t>(d)]);
      }
      cost->flops += flops;
      const double at_peak = target_.peak_tflops > 0
                                 ? flops / (target_.peak_tflops * target_.product_efficiency * 1e9)
                                 : 0;
      cost->compute_ms += is_tpu() ? at_peak + OpMs() : std::max(at_peak, MemoryMs(bytes));
    } else if (node.op_name() == "attention" || node.op_name() == "attention_grad") {
      // Causal, so of half the pairs of tokens; two products of each forward, five backward.
      const Dims& q = node.operand(0).dims();  // [B, K, G, T, H]
      double flops = static_cast<double>(node.operand(0).type().num_elements()) *
                     static_cast<double>(q.at(3)) * (node.op_name() == "attention" ? 2 : 5);
      cost->flops += flops;
      if (target_.peak_tflops > 0) {
        cost->compute_ms += flops / (target_.peak_tflops * kAttentionEfficiency * 1e9);
      }
    } else if (IsElementwise(node)) {
      if (node.types()[0].dtype == DType::kF32) {
        cost->elementwise += static_cast<double>(node.types()[0].num_elements());
      }
    } else if (!IsFused(node)) {
      cost->compute_ms += is_tpu() ? OpMs() : MemoryMs(bytes);
    }
  }

  bool is_tpu() const { return target_.plugin == "tpu"; }
  double OpMs() const { return 1e-3 * target_.op_us; }

  // Of what a loop's iteration reads of stacked values and adds to them.
  double SliceMs(const Node& scan) const {
    if (!is_tpu()) return 0;
    const ops::ScanLayout layout(scan);
    const Graph& body = *scan.regions()[0];
    int64_t bytes = 0;
    for (int p = 0; p < layout.num_parameters(); ++p) {
      if (layout.is_x(p)) bytes += Bytes(body.parameters()[p]);
    }
    for (int k = 0; k < layout.num_ys(); ++k) bytes += Bytes(body.outputs()[layout.num_carry + k]);
    return MemoryMs(bytes);
  }

  const Target& target_;
};

}  // namespace

Estimate EstimateProgram(const compile::Program& program, const Target& target) {
  const Graph& graph = *program.graph;
  Estimate estimate;
  int64_t crossing = 0, outputs = 0;
  std::vector<bool> donated(graph.outputs().size());
  for (size_t p = 0; p < graph.parameters().size(); ++p) {
    crossing += Bytes(graph.parameters()[p]);
    const int output = graph.parameter_infos()[p].donated_to_output;
    if (output >= 0) donated[static_cast<size_t>(output)] = true;
  }
  for (size_t i = 0; i < donated.size(); ++i) {
    const int64_t bytes = Bytes(graph.outputs()[i]);
    crossing += bytes;
    if (!donated[i]) outputs += bytes;
  }
  const std::vector<bool> placed(graph.outputs().size(), true);
  const bool tpu = target.plugin == "tpu";
  estimate.working_bytes =
      outputs + MemoryWalk(tpu, tpu && compile::KeepsBFloat16Copies(program.compiler_flags))
                    .Peak(graph, placed);
  const TimeWalk walk(target);
  const Cost cost = walk.Of(graph, false);
  estimate.flops = cost.flops;
  estimate.compute_ms = cost.compute_ms;
  estimate.transfer_ms = cost.transfer_ms;
  // What crosses the program is read and written at least once: an update is little else.
  estimate.ms = std::max(cost.ms, cost.exposed_ms + walk.MemoryMs(crossing));
  return estimate;
}

}  // namespace mw::plan
