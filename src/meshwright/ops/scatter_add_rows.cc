#include "meshwright/ops/scatter_add_rows.h"

#include <fmt/format.h>

#include "meshwright/ops/and.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/select.h"
#include "meshwright/ops/take_rows.h"

namespace mw::ops {
namespace {

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "scatter_add_rows"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kNumber);
    const TensorType& x = node.operand(0).type();
    const TensorType& ids = node.operand(1).type();
    const TensorType& updates = node.operand(2).type();
    if (x.rank() == 0 || x.dims[0] < 1) {
      node.Fail(fmt::format("{} has no rows to add into", x.ToString()));
    }
    if (!IsInteger(ids.dtype)) {
      node.Fail(fmt::format("ids are {}; they must be integers", ids.ToString()));
    }
    Dims wanted = ids.dims;
    wanted.insert(wanted.end(), x.dims.begin() + 1, x.dims.end());
    if (updates.dtype != x.dtype || updates.dims != wanted) {
      node.Fail(fmt::format("updates are {}; rows of {} at ids {} take {}", updates.ToString(),
                            x.ToString(), ids.ToString(), TensorType(x.dtype, wanted).ToString()));
    }
    return {TensorType(x.dtype, x.dims)};
  }

  // The ids' dims are summed over, so what is added to must be unreduced over their
  // axes too (spmd/propagate.cc adds it afterwards where it is not).
  ShardingRule Sharding(const Node& node) const override {
    const int ids_rank = node.operand(1).rank();
    const std::string ids = FactorLetters(ids_rank, 1);
    const std::string row = FactorLetters(node.operand(0).rank() - 1, 1 + ids_rank);
    return ShardingRule::Factors({"a" + row, ids, ids + row}, {"a" + row}).Sum({0, 2});
  }

  void Vjp(VjpContext& ctx) const override {
    ctx.Add(0, ctx.ct());
    if (!ctx.wants(2)) return;
    const Value ids = ctx.operand(1);
    const Value rows = TakeRows(ctx.ct(), ids);
    if (ctx.node().attrs().Bool("clamp")) {
      ctx.Add(2, rows);
      return;
    }
    // A dropped update has no gradient, but TakeRows reads some row for it.
    const double num_rows = static_cast<double>(ctx.node().operand(0).dim(0));
    const Value in_range = And(GreaterEqual(ids, 0), Less(ids, num_rows));
    ctx.Add(2, Select(BroadcastInDim(in_range, rows.dims(), Sequence(ids.rank())), rows,
                      FullLike(rows, 0)));
  }

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    stablehlo::Writer& writer = ctx.writer();
    const TensorType& x = node.operand(0).type();
    const TensorType& ids = node.operand(1).type();
    const TensorType& updates = node.operand(2).type();
    std::string ids_name = ctx.operand(1);
    if (node.attrs().Bool("clamp")) {
      const std::string scalar = stablehlo::TypeText(ids.dtype, {});
      const std::string low = writer.Splat(ids.dtype, {}, 0);
      const std::string high = writer.Splat(ids.dtype, {}, static_cast<double>(x.dims[0] - 1));
      ids_name = writer.Assign(fmt::format("stablehlo.clamp {}, {}, {} : ({}, {}, {}) -> {}", low,
                                           ids_name, high, scalar, stablehlo::TypeText(ids), scalar,
                                           stablehlo::TypeText(ids)));
    }
    const std::string window =
        x.rank() == 1 ? ""
                      : fmt::format("update_window_dims = {}, ",
                                    stablehlo::IntList(Sequence(x.rank() - 1, ids.rank())));
    const std::string result = writer.NewName();
    const std::string a = writer.NewName();
    const std::string b = writer.NewName();
    const std::string scalar = stablehlo::TypeText(x.dtype, {});
    writer.Line(
        fmt::format("{} = \"stablehlo.scatter\"({}, {}, {}) <{{scatter_dimension_numbers = "
                    "#stablehlo.scatter<{}inserted_window_dims = [0], "
                    "scatter_dims_to_operand_dims = [0], index_vector_dim = {}>}}> ({{",
                    result, ctx.operand(0), ids_name, ctx.operand(2), window, ids.rank()));
    writer.Line(fmt::format("^bb0({}: {}, {}: {}):", a, scalar, b, scalar));
    writer.Indent();
    const std::string sum = writer.Assign(fmt::format("stablehlo.add {}, {} : {}", a, b, scalar));
    writer.Line(fmt::format("stablehlo.return {} : {}", sum, scalar));
    writer.Dedent();
    writer.Line(fmt::format("}}) : {} -> {}", stablehlo::TypeList({x, ids, updates}),
                            stablehlo::TypeText(x)));
    ctx.Set(0, result);
  }
};

}  // namespace

const OpDef& ScatterAddRowsOp() {
  static const Def* const def = new Def();
  return *def;
}

Value ScatterAddRows(Value x, Value ids, Value updates, OutOfRange out_of_range) {
  return graph::Apply(ScatterAddRowsOp(), {x, ids, updates},
                      {{"clamp", out_of_range == OutOfRange::kClamp}});
}

}  // namespace mw::ops
