// Partition: from a global program to one device's, with every collective in it.
#ifndef MESHWRIGHT_SPMD_PARTITION_H_
#define MESHWRIGHT_SPMD_PARTITION_H_

#include <memory>

#include "meshwright/spmd/localize.h"
#include "meshwright/spmd/propagate.h"

namespace mw::spmd {

struct PartitionedProgram {
  // The global program with every decision in its types (propagate.h).
  std::unique_ptr<graph::Graph> placed;
  LocalProgram local;
};

// Propagate, verify, Localize, verify.
//
// On a mesh of one device `local` has no collective. Equal graphs and options give
// equal programs.
// Errors: those of Propagate.
PartitionedProgram Partition(const graph::Graph& graph, const PropagateOptions& options);

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_PARTITION_H_
