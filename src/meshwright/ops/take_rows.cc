#include "meshwright/ops/take_rows.h"

#include <fmt/format.h>

#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/scatter_add_rows.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "take_rows"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& table = node.operand(0).type();
    const TensorType& ids = node.operand(1).type();
    if (table.rank() == 0 || table.dims[0] < 1) {
      node.Fail(fmt::format("table {} has no rows to take", table.ToString()));
    }
    if (!IsInteger(ids.dtype)) {
      node.Fail(fmt::format("ids are {}; they must be integers", ids.ToString()));
    }
    Dims dims = ids.dims;
    dims.insert(dims.end(), table.dims.begin() + 1, table.dims.end());
    return {TensorType(table.dtype, std::move(dims))};
  }

  // The row is summed over: of a table with sharded rows every device gives those it
  // has and zeros for the rest (spmd/localize.cc).
  ShardingRule Sharding(const Node& node) const override {
    const int ids_rank = node.operand(1).rank();
    const std::string ids = FactorLetters(ids_rank, 1);
    const std::string row = FactorLetters(node.operand(0).rank() - 1, 1 + ids_rank);
    return ShardingRule::Factors({"a" + row, ids}, {ids + row}).Sum({0});
  }

  void Vjp(VjpContext& ctx) const override {
    if (!ctx.wants(0)) return;
    const auto added_to = [&](Value rows) {
      return ScatterAddRows(rows, ctx.operand(1), Convert(ctx.ct(), rows.dtype()),
                            OutOfRange::kClamp);
    };
    if (const std::optional<Value> sink = ctx.TakeSink(0)) {
      ctx.AddSummed(0, added_to(*sink));
      return;
    }
    const TensorType& table = ctx.node().operand(0).type();
    ctx.Add(0, added_to(Full(ctx.graph(), table.dtype, table.dims, 0)));
  }

  void Lower(LowerContext& ctx) const override {
    const TensorType& table = ctx.node().operand(0).type();
    const int ids_rank = ctx.node().operand(1).rank();
    Dims sizes = table.dims;
    sizes[0] = 1;
    ctx.EmitGeneric(
        "stablehlo.gather",
        fmt::format("<{{dimension_numbers = #stablehlo.gather<{}collapsed_slice_dims = [0], "
                    "start_index_map = [0], index_vector_dim = {}>, slice_sizes = {}}}>",
                    table.rank() == 1
                        ? ""
                        : fmt::format("offset_dims = {}, ",
                                      stablehlo::IntList(Sequence(table.rank() - 1, ids_rank))),
                    ids_rank, stablehlo::I64Array(sizes)));
  }
};

}  // namespace

const OpDef& TakeRowsOp() {
  static const Def* const def = new Def();
  return *def;
}

Value TakeRows(Value table, Value ids) { return graph::Apply(TakeRowsOp(), {table, ids}); }

}  // namespace mw::ops
