// Localize: from a placed global program to the program of one device.
#ifndef MESHWRIGHT_SPMD_LOCALIZE_H_
#define MESHWRIGHT_SPMD_LOCALIZE_H_

#include <memory>

#include "meshwright/core/mesh.h"
#include "meshwright/graph/graph.h"

namespace mw::spmd {

struct LocalProgram {
  // Types are what one device holds. Parameters and outputs in the order of the
  // global program, then, if `has_coordinates`, one more parameter: s32[axes of the
  // mesh], the device's coordinates.
  std::unique_ptr<graph::Graph> graph;
  bool has_coordinates = false;
};

// Replaces every node by the same node on local dims and every reshard by its
// collectives (redistribute.h). Iota starts at the device's place, rows of a table
// whose rows are sharded are looked up where they are, and a maximum over a sharded
// dim is finished by a collective. What no output needs is left out.
//
// REQUIRES: `placed` is what Propagate gives.
LocalProgram Localize(const graph::Graph& placed, const Mesh& mesh);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_LOCALIZE_H_
