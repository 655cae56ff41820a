#include "meshwright/spmd/scatter_sums.h"

#include "meshwright/ops/all_gather.h"
#include "meshwright/ops/collective.h"
#include "meshwright/ops/reduce_scatter.h"
#include "meshwright/spmd/rewrite_nodes.h"

namespace mw::spmd {

using graph::Graph;
using graph::Node;
using graph::Value;

std::unique_ptr<Graph> ScatterSums(const Graph& local, const std::vector<std::string>& axes,
                                   int64_t bytes) {
  return RewriteNodes(local, [&](Graph&, const Node& node, const std::vector<Value>& operands) {
    std::vector<Value> result;
    if (node.op_name() != "all_reduce" || node.attrs().String("kind") != "add") return result;
    const ops::CollectiveGroups groups = ops::GroupsOf(node);
    const TensorType& type = node.operand(0).type();
    if (groups.IsOver(axes) && type.rank() > 1 && type.num_bytes() >= bytes &&
        type.dims[0] % groups.size() == 0) {
      result.push_back(ops::AllGather(ops::ReduceScatter(operands[0], 0, groups), 0, groups));
    }
    return result;
  });
}

}  // namespace mw::spmd
