// Reverse-mode differentiation of a graph.
#ifndef MESHWRIGHT_AUTODIFF_GRADIENT_H_
#define MESHWRIGHT_AUTODIFF_GRADIENT_H_

#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::autodiff {

// When a gradient is added to its accumulator.
enum class Accumulate {
  // Once, as the sum over all uses of the parameter: what is exchanged between devices
  // on the way is exchanged once.
  kWhole,
  // By every use that can, and by loops that use the whole parameter in each iteration:
  // no second tensor of the parameter's size need exist, be it used twice (tied
  // embeddings) or in a loop (the head's).
  kEachUse,
};

struct GradientResult {
  // What stands for the forward graph's outputs.
  std::vector<graph::Value> outputs;
  // One per entry of `wrt`, with the type of that parameter, or of its accumulator
  // where there is one; zeros where the loss does not depend on the parameter.
  std::vector<graph::Value> gradients;
};

// Appends to `dst` a copy of `forward`, with its parameters replaced by
// `arguments`, and the gradient of its scalar output `loss_output`.
//
//   gradients[i] = d loss / d parameter wrt[i]  (+ accumulators[i])
//
// `accumulators`, when not empty, holds one value per entry of `wrt` (null: none)
// of the parameter's dims. The gradient is converted to the accumulator's dtype
// and added to it; a scan over stacked parameters adds slice by slice in place, so
// that no second tensor of that size exists. `accumulate` says when the rest is added.
//
// Errors: GraphError(kInvalidArgument) when the loss is not a float scalar or a
// parameter of `wrt` is not a float.
GradientResult BuildGradient(graph::Graph& dst, const graph::Graph& forward,
                             const std::vector<graph::Value>& arguments,
                             const std::vector<int>& wrt, int loss_output = 0,
                             const std::vector<graph::Value>& accumulators = {},
                             Accumulate accumulate = Accumulate::kWhole);

// As above for outputs of any shape: `cotangents` holds one value of `dst` per
// output (null: zero).
GradientResult BuildVjp(graph::Graph& dst, const graph::Graph& forward,
                        const std::vector<graph::Value>& arguments, const std::vector<int>& wrt,
                        const std::vector<graph::Value>& cotangents,
                        const std::vector<graph::Value>& accumulators = {},
                        Accumulate accumulate = Accumulate::kWhole);

}  // namespace mw::autodiff

#endif  // MESHWRIGHT_AUTODIFF_GRADIENT_H_
