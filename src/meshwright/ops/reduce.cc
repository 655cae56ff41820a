#include "meshwright/ops/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/compare.h"
#include "meshwright/ops/constant.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/dims_util.h"
#include "meshwright/ops/div.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/select.h"

namespace mw::ops {
namespace {

bool Contains(const std::vector<int64_t>& list, int64_t v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

std::vector<int64_t> KeptDims(int rank, const std::vector<int64_t>& reduced) {
  std::vector<int64_t> kept;
  for (int64_t d = 0; d < rank; ++d) {
    if (!Contains(reduced, d)) kept.push_back(d);
  }
  return kept;
}

std::string_view Mnemonic(const std::string& kind) {
  if (kind == "add") return "stablehlo.add";
  if (kind == "max") return "stablehlo.maximum";
  if (kind == "min") return "stablehlo.minimum";
  if (kind == "mul") return "stablehlo.multiply";
  if (kind == "and") return "stablehlo.and";
  MW_CHECK(kind == "or");
  return "stablehlo.or";
}

// The highest or lowest value of an integer type; a literal, since a double does
// not hold every 64-bit integer.
std::string IntegerLimit(DType dtype, bool highest) {
  switch (dtype) {
    case DType::kS8:
      return highest ? "127" : "-128";
    case DType::kS32:
      return fmt::format("{}", highest ? std::numeric_limits<int32_t>::max()
                                       : std::numeric_limits<int32_t>::min());
    case DType::kS64:
      return fmt::format("{}", highest ? std::numeric_limits<int64_t>::max()
                                       : std::numeric_limits<int64_t>::min());
    case DType::kU8:
      return highest ? "255" : "0";
    case DType::kU32:
      return fmt::format("{}", highest ? std::numeric_limits<uint32_t>::max() : 0);
    default:
      return fmt::format("{}", highest ? std::numeric_limits<uint64_t>::max() : 0);
  }
}

std::string Identity(const std::string& kind, DType dtype) {
  if (kind == "add" || kind == "or") return stablehlo::ScalarLiteral(dtype, 0);
  if (kind == "mul" || kind == "and") return stablehlo::ScalarLiteral(dtype, 1);
  const bool highest = kind == "min";
  if (!IsFloat(dtype)) return IntegerLimit(dtype, highest);
  const double infinity = std::numeric_limits<double>::infinity();
  return stablehlo::ScalarLiteral(dtype, highest ? infinity : -infinity);
}

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "reduce"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const std::string& kind = node.attrs().String("kind");
    const bool logical = kind == "and" || kind == "or";
    CheckElementClass(node, 0, logical ? ElementClass::kPred : ElementClass::kNumber);
    const TensorType& x = node.operand(0).type();
    const std::vector<int64_t>& reduced = node.attrs().Ints("dims");
    for (size_t i = 0; i < reduced.size(); ++i) {
      CheckDim(node, reduced[i]);
      for (size_t j = 0; j < i; ++j) {
        if (reduced[i] == reduced[j]) {
          node.Fail(fmt::format("dim {} is reduced twice in dims {} of {}", reduced[i],
                                DimsToString(reduced), x.ToString()));
        }
      }
    }
    Dims dims;
    for (int64_t d : KeptDims(x.rank(), reduced)) dims.push_back(x.dims[d]);
    return {TensorType(x.dtype, std::move(dims))};
  }

  ShardingRule Sharding(const Node& node) const override {
    const std::string letters = FactorLetters(node.operand(0).rank());
    std::string kept;
    for (int64_t d : KeptDims(node.operand(0).rank(), node.attrs().Ints("dims"))) {
      kept += letters[d];
    }
    ShardingRule rule = ShardingRule::Factors({letters}, {kept});
    rule.reduction = node.attrs().String("kind");
    return rule.reduction == "add" ? std::move(rule).Sum({0}) : rule;
  }

  void Vjp(VjpContext& ctx) const override {
    const Node& node = ctx.node();
    const std::string& kind = node.attrs().String("kind");
    const std::vector<int64_t>& reduced = node.attrs().Ints("dims");
    const Dims& dims = node.operand(0).dims();
    const std::vector<int64_t> kept = KeptDims(static_cast<int>(dims.size()), reduced);
    auto widen = [&](Value v) { return BroadcastInDim(v, dims, kept); };
    if (kind == "add") {
      ctx.Add(0, widen(ctx.ct()));
      return;
    }
    const Value x = ctx.operand(0);
    if (kind == "max" || kind == "min") {
      const Value attains = Convert(Equal(x, widen(ctx.result())), x.dtype());
      const Value share = Div(ctx.ct(), ReduceSum(attains, reduced));
      ctx.Add(0, Mul(attains, widen(share)));
      return;
    }
    // d y / d x_i is the product of the others. With P the product of the nonzero
    // elements and n the number of zeros it is P / x_i when n = 0, P at the only
    // zero when n = 1, and 0 elsewhere.
    const Value zero = FullLike(x, 0);
    const Value one = FullLike(x, 1);
    const Value is_zero = Equal(x, zero);
    const Value nonzero = Select(is_zero, one, x);
    const Value product = ReduceProd(nonzero, reduced);
    const Value zeros = ReduceSum(Convert(is_zero, x.dtype()), reduced);
    const Value if_zero = Select(Equal(zeros, FullLike(zeros, 1)), product, FullLike(product, 0));
    const Value if_not = Select(Equal(zeros, FullLike(zeros, 0)), product, FullLike(product, 0));
    ctx.Add(0, Mul(widen(ctx.ct()), Select(is_zero, widen(if_zero), Div(widen(if_not), nonzero))));
  }

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    const std::string& kind = node.attrs().String("kind");
    const TensorType& x = node.operand(0).type();
    const std::string scalar = stablehlo::TypeText(x.dtype, {});
    const std::string init = ctx.writer().Assign(
        fmt::format("stablehlo.constant dense<{}> : {}", Identity(kind, x.dtype), scalar));
    ctx.Set(0,
            ctx.writer().Assign(fmt::format(
                "stablehlo.reduce({} init: {}) applies {} across dimensions = {} : ({}, {}) -> {}",
                ctx.operand(0), init, Mnemonic(kind), stablehlo::IntList(node.attrs().Ints("dims")),
                stablehlo::TypeText(x), scalar, stablehlo::TypeText(node.types()[0]))));
  }
};

}  // namespace

const OpDef& ReduceOp() {
  static const Def* const def = new Def();
  return *def;
}

namespace {

Value Reduce(Value x, const char* kind, const std::vector<int64_t>& dims, bool keep_dims) {
  if (dims.empty()) return x;
  std::vector<int64_t> reduced = FromFront(dims, x.rank());
  std::sort(reduced.begin(), reduced.end());
  const Value y = graph::Apply(ReduceOp(), {x}, {{"kind", std::string(kind)}, {"dims", reduced}});
  if (!keep_dims) return y;
  Dims kept = x.dims();
  for (int64_t d : reduced) kept[d] = 1;
  return Reshape(y, std::move(kept));
}

}  // namespace

Value ReduceSum(Value x, const std::vector<int64_t>& dims, bool keep_dims) {
  return Reduce(x, "add", dims, keep_dims);
}
Value ReduceMax(Value x, const std::vector<int64_t>& dims, bool keep_dims) {
  return Reduce(x, "max", dims, keep_dims);
}
Value ReduceMin(Value x, const std::vector<int64_t>& dims, bool keep_dims) {
  return Reduce(x, "min", dims, keep_dims);
}
Value ReduceProd(Value x, const std::vector<int64_t>& dims, bool keep_dims) {
  return Reduce(x, "mul", dims, keep_dims);
}
Value ReduceAnd(Value x, const std::vector<int64_t>& dims, bool keep_dims) {
  return Reduce(x, "and", dims, keep_dims);
}
Value ReduceOr(Value x, const std::vector<int64_t>& dims, bool keep_dims) {
  return Reduce(x, "or", dims, keep_dims);
}

}  // namespace mw::ops
