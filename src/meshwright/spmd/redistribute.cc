#include "meshwright/spmd/redistribute.h"

#include <algorithm>

#include "meshwright/ops/add.h"
#include "meshwright/ops/all_gather.h"
#include "meshwright/ops/all_reduce.h"
#include "meshwright/ops/all_to_all.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/dynamic_slice.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce_scatter.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/transpose.h"

namespace mw::spmd {
namespace {

using Axes = std::vector<std::string>;
using graph::Graph;
using graph::Value;

bool Contains(const Axes& axes, const std::string& axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

ops::CollectiveGroups GroupsOver(const Mesh& mesh, const Axes& axes) {
  return {mesh.Groups(axes), axes};
}

// Whether `axes` begins with `prefix`.
bool BeginsWith(const Axes& axes, const Axes& prefix) {
  return prefix.size() <= axes.size() && std::equal(prefix.begin(), prefix.end(), axes.begin());
}

// See redistribute.h. The largest that was seen to stay one has 344 MiB, the smallest that
// did not 594.
constexpr int64_t kLargestLastDimScatterBytes = int64_t{384} << 20;

Value Scatter(Value x, int64_t dim, const ops::CollectiveGroups& groups) {
  const bool last = dim + 1 == x.rank();
  if (!last || (x.rank() > 1 && x.type().num_bytes() <= kLargestLastDimScatterBytes)) {
    return ops::ReduceScatter(x, dim, groups);
  }
  const int64_t parts = groups.size();
  Dims result = x.dims();
  result.back() /= parts;
  Dims split = x.dims();
  split.back() = parts;
  split.push_back(result.back());
  std::vector<int64_t> order = ops::Sequence(static_cast<int>(split.size()));
  std::rotate(order.begin(), order.end() - 2, order.end() - 1);
  const Value rows = ops::Transpose(ops::Reshape(x, split), order);
  return ops::Reshape(ops::ReduceScatter(rows, 0, groups), result);
}

}  // namespace

Value Position(Graph& graph, const Axes& axes, const Mesh& mesh, Value coordinates) {
  Value position;
  for (const std::string& axis : axes) {
    const int64_t size = mesh.Size(axis);
    if (size == 1) continue;
    const int64_t i = mesh.Index(axis);
    const Value place = ops::Reshape(ops::SliceInDim(graph.Import(coordinates), 0, i, i + 1), {});
    position = position ? ops::Add(ops::Mul(position, static_cast<double>(size)), place) : place;
  }
  return position ? position : ops::Full(graph, DType::kS32, {}, 0);
}

Value Redistribute(Value local, const Dims& dims, const PartitionSpec& from,
                   const PartitionSpec& to, const Mesh& mesh, Value coordinates) {
  Graph& graph = local.graph();
  const size_t rank = dims.size();
  std::vector<Axes> have = from.dims;
  std::vector<Axes> want = to.dims;
  have.resize(rank);
  want.resize(rank);

  // 1 and 2: reductions.
  Axes reduce;
  for (const std::string& axis : from.unreduced) {
    if (!Contains(to.unreduced, axis)) reduce.push_back(axis);
  }
  for (size_t d = 0; d < rank && !reduce.empty(); ++d) {
    if (!BeginsWith(want[d], have[d])) continue;
    Axes scattered;
    for (size_t i = have[d].size(); i < want[d].size(); ++i) {
      if (!Contains(reduce, want[d][i])) break;
      scattered.push_back(want[d][i]);
    }
    if (scattered.empty()) continue;
    local = Scatter(local, static_cast<int64_t>(d), GroupsOver(mesh, scattered));
    for (const std::string& axis : scattered) {
      std::erase(reduce, axis);
      have[d].push_back(axis);
    }
  }
  if (!reduce.empty()) local = ops::AllReduce(local, GroupsOver(mesh, reduce));

  // 3: an axis that is last on one dim and next on another.
  for (size_t d = 0; d < rank; ++d) {
    for (bool moved = true; moved;) {
      moved = false;
      if (have[d].empty() || BeginsWith(want[d], have[d])) break;
      const std::string axis = have[d].back();
      for (size_t e = 0; e < rank; ++e) {
        if (e == d || !BeginsWith(want[e], have[e]) || want[e].size() == have[e].size() ||
            want[e][have[e].size()] != axis ||
            local.dim(static_cast<int>(e)) % mesh.Size(axis) != 0) {
          continue;
        }
        local = ops::AllToAll(local, static_cast<int64_t>(e), static_cast<int64_t>(d),
                              GroupsOver(mesh, {axis}));
        have[d].pop_back();
        have[e].push_back(axis);
        moved = true;
        break;
      }
    }
  }
  // 4: what follows the common beginning.
  for (size_t d = 0; d < rank; ++d) {
    size_t common = 0;
    while (common < have[d].size() && common < want[d].size() &&
           have[d][common] == want[d][common]) {
      ++common;
    }
    if (common == have[d].size()) continue;
    const Axes gathered(have[d].begin() + static_cast<std::ptrdiff_t>(common), have[d].end());
    local = ops::AllGather(local, static_cast<int64_t>(d), GroupsOver(mesh, gathered));
    have[d].resize(common);
  }
  // 5: slices.
  for (size_t d = 0; d < rank; ++d) {
    if (have[d].size() == want[d].size()) continue;
    const Axes sliced(want[d].begin() + static_cast<std::ptrdiff_t>(have[d].size()), want[d].end());
    const int64_t size = local.dim(static_cast<int>(d)) / mesh.Size(sliced);
    const Value start =
        ops::Mul(Position(graph, sliced, mesh, coordinates), static_cast<double>(size));
    local = ops::DynamicSliceInDim(local, start, size, static_cast<int64_t>(d));
  }
  // 6: masks.
  Axes masked;
  for (const std::string& axis : to.unreduced) {
    if (!Contains(from.unreduced, axis)) masked.push_back(axis);
  }
  if (!masked.empty()) {
    const Value first = ops::Equal(Position(graph, masked, mesh, coordinates), 0);
    local = ops::Select(first, local, ops::FullLike(local, 0));
  }
  return local;
}

}  // namespace mw::spmd
