// CensusTally: collectives counted by what they are, to compare a program's census with
// the compiler's text.
#ifndef MESHWRIGHT_GRAPH_TESTING_CENSUS_TALLY_H_
#define MESHWRIGHT_GRAPH_TESTING_CENSUS_TALLY_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "meshwright/core/mesh.h"
#include "meshwright/hlo/collectives.h"
#include "meshwright/spmd/census.h"

namespace mw {

// Kind as HLO writes it, groups, trips of the loops around it.
using CensusKey = std::tuple<std::string, std::vector<std::vector<int64_t>>, int64_t>;
struct CensusAmount {
  int64_t count = 0;
  int64_t bytes = 0;  // sent by a device in one trip, see spmd::CensusRow

  friend bool operator==(const CensusAmount&, const CensusAmount&) = default;
};
using CensusTally = std::map<CensusKey, CensusAmount>;

CensusTally TallyOf(const spmd::Census& census, const Mesh& mesh);
CensusTally TallyOf(const std::vector<hlo::Collective>& collectives);

// One line each.
std::string ToString(const CensusTally& tally);

}  // namespace mw

#endif  // MESHWRIGHT_GRAPH_TESTING_CENSUS_TALLY_H_
