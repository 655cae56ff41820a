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
    const int64_t n = c.groups.empty() ? 1 : static_cast<int64_t>(c.groups[0].size());
    if (c.kind == "all-reduce") amount.bytes += 2 * (c.result_bytes / n * (n - 1));
    if (c.kind == "all-gather") amount.bytes += c.result_bytes / n * (n - 1);
    if (c.kind == "reduce-scatter") amount.bytes += c.result_bytes * (n - 1);
    if (c.kind == "all-to-all") amount.bytes += c.result_bytes / n * (n - 1);
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
