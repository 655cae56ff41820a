// The two passes of reverse mode over one graph, which gradients of programs and
// of region bodies share.
#ifndef MESHWRIGHT_AUTODIFF_DIFFERENTIATOR_H_
#define MESHWRIGHT_AUTODIFF_DIFFERENTIATOR_H_

#include <any>
#include <optional>
#include <vector>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/graph/graph.h"
#include "meshwright/ops/op_def.h"

namespace mw::autodiff {

// For every node of `graph`, which results carry a gradient given that the
// parameters marked in `active` do: floats that depend on one of them through
// differentiable ops.
std::vector<std::vector<bool>> ActiveResults(const graph::Graph& graph,
                                             const std::vector<bool>& active);

// Copies a graph into `dst` (Forward), then appends its reverse pass (Backward).
class Differentiator {
 public:
  // `arguments` stand for the parameters of `src`; cotangents are computed for
  // those marked in `active`. Both graphs must outlive this.
  Differentiator(graph::Graph& dst, const graph::Graph& src, std::vector<graph::Value> arguments,
                 const std::vector<bool>& active, Accumulate accumulate = Accumulate::kWhole);

  // Gives parameter `p` an accumulator its gradient is added into.
  void SetSink(int p, graph::Value accumulator);

  // Copies the forward nodes; returns the outputs in `dst`.
  std::vector<graph::Value> Forward();

  // Appends the reverse pass for one cotangent per output (null: zero).
  void Backward(const std::vector<graph::Value>& cotangents);

  // The cotangent of parameter `p` after Backward, but for what Sum(p) holds of it; null
  // when nothing else flows there.
  graph::Value ParameterCotangent(int p) const;
  // The accumulator of `p` with what was added into it; null when it has none.
  graph::Value Sum(int p) const { return sums_[p]; }

 private:
  class ForwardContext;
  class BackwardContext;

  bool IsActive(graph::Value v) const { return active_[v.node->id()][v.index]; }
  void AddCotangent(graph::Value v, graph::Value cotangent);
  std::optional<graph::Value> TakeSink(graph::Value v, bool in_loop);
  void AddSummed(graph::Value v, graph::Value sum);
  // The parameter index of `v`, or -1.
  int ParameterIndex(graph::Value v) const;

  graph::Graph& dst_;
  const graph::Graph& src_;
  std::vector<graph::Value> arguments_;
  std::vector<std::vector<bool>> active_;
  graph::ValueMap<graph::Value> forward_;     // src value → dst value
  graph::ValueMap<graph::Value> cotangents_;  // src value → dst value
  graph::ValueMap<int> active_uses_;
  std::vector<std::any> saved_;  // by node id
  Accumulate accumulate_;
  std::vector<graph::Value> sums_;  // by parameter
  std::vector<bool> taken_;         // by parameter: an op is adding to it
};

}  // namespace mw::autodiff

#endif  // MESHWRIGHT_AUTODIFF_DIFFERENTIATOR_H_
