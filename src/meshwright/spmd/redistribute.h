// Redistribute: the collectives that take a value from one spec to another.
#ifndef MESHWRIGHT_SPMD_REDISTRIBUTE_H_
#define MESHWRIGHT_SPMD_REDISTRIBUTE_H_

#include "meshwright/core/mesh.h"
#include "meshwright/graph/graph.h"

namespace mw::spmd {

// Appends to the per-device program of `local` what takes it from `from` to `to`.
//
// In this order, each step only where it is needed and never over axes of size 1:
//   1. unreduced axes that shard a dim of `to`: reduce-scatter
//   2. the other unreduced axes that `to` lacks: one all-reduce
//   3. axes that move from one dim to another: all-to-all
//   4. axes that no longer shard their dim: all-gather, all of a dim in one
//   5. axes that newly shard a dim: a slice, which costs nothing
//   6. axes that are newly unreduced: the value on the first device of the axis,
//      zeros on the others
// `coordinates` is s32[axes of the mesh], the device's place, for 5 and 6.
//
// A reduce-scatter of the last dim of a vector or of a very large tensor is written as one
// of a new first dim, since TPU compilers turn it into an all-reduce. It costs a copy of the
// tensor in the new order, so others stay as they are.
// REQUIRES: both specs are canonical and fit the tensor of the global `dims`.
graph::Value Redistribute(graph::Value local, const Dims& dims, const PartitionSpec& from,
                          const PartitionSpec& to, const Mesh& mesh, graph::Value coordinates);

// Position of the device along `axes` taken together: s32 scalar.
graph::Value Position(graph::Graph& graph, const std::vector<std::string>& axes, const Mesh& mesh,
                      graph::Value coordinates);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_REDISTRIBUTE_H_
