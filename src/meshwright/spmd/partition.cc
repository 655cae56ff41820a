#include "meshwright/spmd/partition.h"

namespace mw::spmd {

PartitionedProgram Partition(const graph::Graph& graph, const PropagateOptions& options) {
  PartitionedProgram program;
  program.placed = Propagate(graph, options);
  program.placed->Verify();
  VerifySpecs(*program.placed, options.mesh);
  program.local = Localize(*program.placed, options.mesh);
  program.local.graph->Verify();
  return program;
}

}  // namespace mw::spmd
