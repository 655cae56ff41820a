#include "meshwright/spmd/census.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "meshwright/graph/live_nodes.h"
#include "meshwright/ops/collective.h"
#include "meshwright/ops/scan.h"

namespace mw::spmd {
namespace {

using graph::Graph;
using graph::Node;
using Key = std::tuple<std::string, std::vector<std::string>, int64_t>;

void Walk(const Graph& graph, int64_t trips, std::map<Key, CensusRow>* rows) {
  const std::vector<bool> live = graph::LiveNodes(graph);
  for (const auto& node : graph.nodes()) {
    if (!live[node->id()]) continue;
    if (node->op_name() == "scan") {
      Walk(*node->regions()[0], trips * ops::ScanLayout(*node).length, rows);
      continue;
    }
    for (const auto& region : node->regions()) Walk(*region, trips, rows);
    if (!node->attrs().Has("group_size")) continue;
    const ops::CollectiveGroups groups = ops::GroupsOf(*node);
    CensusRow& row = (*rows)[{std::string(node->op_name()), groups.axes, trips}];
    row.kind = node->op_name();
    row.axes = groups.axes;
    row.group_size = groups.size();
    row.trips = trips;
    ++row.count;
    row.bytes += ops::SentBytes(*node);
  }
}

}  // namespace

Census TakeCensus(const Graph& local) {
  std::map<Key, CensusRow> rows;
  Walk(local, 1, &rows);
  Census census;
  for (auto& [key, row] : rows) census.push_back(std::move(row));
  return census;
}

int64_t CountCollectives(const Census& census, const std::string& kind, const std::string& axis) {
  int64_t count = 0;
  for (const CensusRow& row : census) {
    if (!kind.empty() && row.kind != kind) continue;
    if (!axis.empty() && std::ranges::find(row.axes, axis) == row.axes.end()) continue;
    count += row.count * row.trips;
  }
  return count;
}

std::string CensusText(const Census& census, const Mesh& mesh) {
  if (census.empty()) return "no collectives\n";
  const bool hosts = mesh.num_hosts() > 1;
  std::string text = fmt::format("{:<16}{:<20}{:>6}{:>8}{:>8}{:>16}{}\n", "kind", "axes", "group",
                                 "count", "trips", "bytes/device", hosts ? "  hosts" : "");
  for (const CensusRow& row : census) {
    text += fmt::format("{:<16}{:<20}{:>6}{:>8}{:>8}{:>16}{}\n", row.kind,
                        fmt::format("{}", fmt::join(row.axes, ",")), row.group_size, row.count,
                        row.trips, row.bytes * row.trips,
                        !hosts                       ? ""
                        : mesh.WithinHosts(row.axes) ? "  within"
                                                     : "  between");
  }
  return text;
}

}  // namespace mw::spmd
