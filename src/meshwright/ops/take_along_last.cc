#include "meshwright/ops/take_along_last.h"

#include <fmt/format.h>

#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/select.h"

namespace mw::ops {

Value TakeAlongLast(Value x, Value ids) {
  Graph& graph = graph::CommonGraph({x, ids});
  const Dims& dims = x.dims();
  if (dims.empty() || Dims(dims.begin(), dims.end() - 1) != ids.dims() || !IsInteger(ids.dtype())) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "take_along_last",
                     fmt::format("ids {} do not pick from {}: they are integers with its dims but "
                                 "the last",
                                 ids.type().ToString(), x.type().ToString()),
                     graph.scope());
  }
  const int last = x.rank() - 1;
  const Value index = Iota(graph, ids.dtype(), dims, last);
  const Value chosen = Equal(index, BroadcastInDim(ids, dims, Sequence(last)));
  return ReduceSum(Select(chosen, x, Full(graph, x.dtype(), dims, 0)), {last});
}

}  // namespace mw::ops
