// DelayReductions: loops that sum a layer's gradients over devices while the next layer computes.
#ifndef MESHWRIGHT_SPMD_DELAY_REDUCTIONS_H_
#define MESHWRIGHT_SPMD_DELAY_REDUCTIONS_H_

#include <cstdint>
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
// Outside of those loops an all_reduce over one of `axes` of a tensor of `large_bytes` or more (0:
// of none) becomes a reduce_scatter and an all_gather of its first dim, where the devices divide
// it: as many bytes travel, but what is summed is gone before the whole sum is there, where the
// result of an all_reduce that travels beside computation lies beside its operand.
//
// REQUIRES: `local` is what Localize gives.
std::unique_ptr<graph::Graph> DelayReductions(const graph::Graph& local,
                                              const std::vector<std::string>& axes,
                                              int64_t large_bytes = 0);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_DELAY_REDUCTIONS_H_
