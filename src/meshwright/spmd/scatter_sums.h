// ScatterSums: large sums over devices in two collectives, which hold less at a time.
#ifndef MESHWRIGHT_SPMD_SCATTER_SUMS_H_
#define MESHWRIGHT_SPMD_SCATTER_SUMS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::spmd {

// A copy of a device's program in which an all_reduce by add over one of `axes`, of a tensor of
// `bytes` or more, is a reduce_scatter and an all_gather of its first dim, where the devices divide
// it. Those in loops stay, but for loops that have a loop in them.
//
// As many bytes travel, but what is summed is gone before the whole sum is there, where the result
// of an all_reduce that travels beside computation lies beside its operand.
//
// REQUIRES: `local` is what Localize gives.
std::unique_ptr<graph::Graph> ScatterSums(const graph::Graph& local,
                                          const std::vector<std::string>& axes, int64_t bytes);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_SCATTER_SUMS_H_
