// Census: the collectives of a per-device program.
#ifndef MESHWRIGHT_SPMD_CENSUS_H_
#define MESHWRIGHT_SPMD_CENSUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "meshwright/core/mesh.h"
#include "meshwright/graph/graph.h"

namespace mw::spmd {

// Collectives that are alike.
struct CensusRow {
  std::string kind;               // "all_reduce", "all_gather", "reduce_scatter", "all_to_all"
  std::vector<std::string> axes;  // of the mesh
  int64_t group_size = 0;
  int64_t trips = 1;  // how often a run executes each: the product of the loops around it
  int64_t count = 0;  // how many stand in the program
  // Sent by one device in one execution of all of them, in bytes, by the ring
  // algorithms: all-reduce 2 (n - 1) / n of its operand, reduce-scatter and
  // all-to-all (n - 1) / n of it, all-gather n - 1 times it.
  int64_t bytes = 0;

  friend bool operator==(const CensusRow&, const CensusRow&) = default;
};

// By kind, axes and trips.
using Census = std::vector<CensusRow>;

// What `local`, a per-device program, holds; nodes that no output needs do not count.
Census TakeCensus(const graph::Graph& local);

// Executions of `kind` ("" for all kinds) over groups that `axis` is part of ("" for
// all), loops counted.
int64_t CountCollectives(const Census& census, const std::string& kind,
                         const std::string& axis = "");

// A table for people, one row a line, with a heading. Where `mesh` is spread over several
// hosts a column says whether the groups lie within them.
std::string CensusText(const Census& census, const Mesh& mesh = Mesh());

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_CENSUS_H_
