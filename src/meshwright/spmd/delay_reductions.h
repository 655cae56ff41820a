// DelayReductions: loops that sum a layer's gradients over devices while the next layer computes.
#ifndef MESHWRIGHT_SPMD_DELAY_REDUCTIONS_H_
#define MESHWRIGHT_SPMD_DELAY_REDUCTIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::spmd {

// A copy of a device's program in which every scan sums over the devices what its last iteration
// left: iteration i reduces and stacks (or adds to its sink) what i - 1 computed, and the
// last one's is reduced after the loop.
//
//   for i:  y[i] = all_reduce(body(xs[i]))
//   →
//   pending = 0
//   for i:  y[max(i - 1, 0)] = all_reduce(pending); pending = body(xs[i])
//   y[last] = all_reduce(pending)
//
// The reduction depends on nothing that the iteration computes, so a compiler can let it travel
// meanwhile; a second layer's gradients are live. The first iteration reduces zeros. A reduction
// (all_reduce by add, reduce_scatter) over one of `axes` counts when a stacked result depends on it
// alone, by way of conversions, reshapes, transposes, barriers and further reductions, which wait
// with it, and nothing else reads it. Barriers keep
// compilers from moving it out of the loop, which would need all layers' gradients twice. Results
// are the same bits, but for the sign of zeros.
//
// REQUIRES: `local` is what Localize gives.
std::unique_ptr<graph::Graph> DelayReductions(const graph::Graph& local,
                                              const std::vector<std::string>& axes);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_DELAY_REDUCTIONS_H_
