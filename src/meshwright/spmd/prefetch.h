// PrefetchGathers: loops that gather the next layer's weights ahead.
#ifndef MESHWRIGHT_SPMD_PREFETCH_H_
#define MESHWRIGHT_SPMD_PREFETCH_H_

#include <memory>

#include "meshwright/graph/graph.h"

namespace mw::spmd {

// A copy of a device's program in which every scan carries the gathered weights of its
// next iteration: iteration i computes with what iteration i - 1 gathered, and the first
// finds its own gathered before the loop.
//
//   for i:  w = all_gather(xs[i]); carry = body(carry, w)
//   →
//   w = all_gather(xs[0])
//   for i:  next = all_gather(xs[min(i + 1, last)]); carry = body(carry, w); w = next
//
// The gather depends on nothing that the iteration computes, so a compiler can let it
// travel meanwhile; two layers' gathered weights are live instead of one. The last
// iteration gathers its own slice once more, which nobody uses: with it peeled off, the
// stacked results would have to be put together from two buffers. Forward and backward
// loops alike. A gather counts when it depends on one slice by way of conversions,
// reshapes, transposes and barriers only. Results are the same bits.
//
// REQUIRES: `local` is what Localize gives.
std::unique_ptr<graph::Graph> PrefetchGathers(const graph::Graph& local);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_PREFETCH_H_
