#include "meshwright/graph_testing/census_tally.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace mw {

CensusTally TallyOf(const spmd::Census& census, const Mesh& mesh) {
  CensusTally tally;
  for (const spmd::CensusRow& row : census) {
    std::string kind = row.kind;
    std::ranges::replace(kind, '_', '-');
    CensusAmount& amount = tally[{kind, mesh.Groups(row.axes), row.trips}];
    amount.count += row.count;
    amount.bytes += row.bytes;
  }
  return tally;
}

CensusTally TallyOf(const std::vector<hlo::Collective>& collectives) {
  CensusTally tally;
  for (const hlo::Collective& c : collectives) {
    CensusAmount& amount = tally[{c.kind, c.groups, c.trips}];
    ++amount.count;
    amount.bytes += hlo::SentBytes(c);
  }
  return tally;
}

std::string ToString(const CensusTally& tally) {
  std::string text;
  for (const auto& [key, amount] : tally) {
    text += fmt::format("{} over {}, {} trips: {} of {} bytes\n", std::get<0>(key),
                        std::get<1>(key), std::get<2>(key), amount.count, amount.bytes);
  }
  return text;
}

}  // namespace mw
