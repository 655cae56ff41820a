#include "meshwright/ops/dot_general.h"

#include <fmt/format.h>

#include <algorithm>

#include "meshwright/ops/convert.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/matmul_kernel.h"
#include "meshwright/ops/transpose.h"

namespace mw::ops {
namespace {

bool Contains(const std::vector<int64_t>& list, int64_t v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

std::vector<int64_t> FreeDims(int rank, const std::vector<int64_t>& batch,
                              const std::vector<int64_t>& contract) {
  std::vector<int64_t> free;
  for (int64_t d = 0; d < rank; ++d) {
    if (!Contains(batch, d) && !Contains(contract, d)) free.push_back(d);
  }
  return free;
}

DotDims DimsOf(const Node& node) {
  const Attributes& a = node.attrs();
  return {a.Ints("lhs_batch"), a.Ints("rhs_batch"), a.Ints("lhs_contract"), a.Ints("rhs_contract")};
}

// One letter per dimension: batch, contracted and free factors.
void Letters(const Node& node, std::string* lhs, std::string* rhs, std::string* out) {
  const DotDims d = DimsOf(node);
  const int lhs_rank = node.operand(0).rank();
  const int rhs_rank = node.operand(1).rank();
  lhs->assign(static_cast<size_t>(lhs_rank), '?');
  rhs->assign(static_cast<size_t>(rhs_rank), '?');
  out->clear();
  char next = 'a';
  for (size_t i = 0; i < d.lhs_batch.size(); ++i, ++next) {
    (*lhs)[d.lhs_batch[i]] = (*rhs)[d.rhs_batch[i]] = next;
    out->push_back(next);
  }
  for (size_t i = 0; i < d.lhs_contract.size(); ++i, ++next) {
    (*lhs)[d.lhs_contract[i]] = (*rhs)[d.rhs_contract[i]] = next;
  }
  for (int64_t i : FreeDims(lhs_rank, d.lhs_batch, d.lhs_contract)) {
    (*lhs)[i] = next;
    out->push_back(next++);
  }
  for (int64_t i : FreeDims(rhs_rank, d.rhs_batch, d.rhs_contract)) {
    (*rhs)[i] = next;
    out->push_back(next++);
  }
}

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "dot_general"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    CheckElementClass(node, 0, ElementClass::kFloat);
    const TensorType& lhs = node.operand(0).type();
    const TensorType& rhs = node.operand(1).type();
    if (lhs.dtype != rhs.dtype) {
      node.Fail(fmt::format("operand dtypes differ: lhs {} vs rhs {}; convert one of them",
                            lhs.ToString(), rhs.ToString()));
    }
    const DotDims d = DimsOf(node);
    CheckPairs(node, "batch", d.lhs_batch, d.rhs_batch);
    CheckPairs(node, "contracting", d.lhs_contract, d.rhs_contract);
    Dims out;
    for (int64_t i : d.lhs_batch) out.push_back(lhs.dims[i]);
    for (int64_t i : FreeDims(lhs.rank(), d.lhs_batch, d.lhs_contract)) out.push_back(lhs.dims[i]);
    for (int64_t i : FreeDims(rhs.rank(), d.rhs_batch, d.rhs_contract)) out.push_back(rhs.dims[i]);
    return {TensorType(node.attrs().Get<DType>("out_dtype"), std::move(out))};
  }

  ShardingRule Sharding(const Node& node) const override {
    ShardingRule rule = ShardingRule::Of(ShardingRule::Kind::kFactors);
    rule.operands.resize(2);
    rule.results.resize(1);
    Letters(node, &rule.operands[0], &rule.operands[1], &rule.results[0]);
    return std::move(rule).Product({0, 1});
  }

  // With the letters of the forward product, d lhs = einsum(out,rhs->lhs) and
  // d rhs = einsum(out,lhs->rhs), written so that the gradient's dims come in the
  // operand's order. In mixed precision the cotangent is first brought to the
  // operands' dtype and the product gives float32 to whoever sums gradients.
  void Vjp(VjpContext& ctx) const override {
    const Node& node = ctx.node();
    std::string lhs, rhs, out;
    Letters(node, &lhs, &rhs, &out);
    const std::string& precision = node.attrs().String("precision");
    const Value ct = Convert(ctx.ct(), node.operand(0).dtype());
    if (ctx.wants(0)) {
      ctx.Add(0, Gradient(ct, out, ctx.operand(1), rhs, lhs, node.operand(0).dtype(), precision));
    }
    if (ctx.wants(1)) {
      ctx.Add(1, Gradient(ct, out, ctx.operand(0), lhs, rhs, node.operand(1).dtype(), precision));
    }
  }

  void Lower(LowerContext& ctx) const override {
    const Node& node = ctx.node();
    const TensorType& lhs = node.operand(0).type();
    const TensorType& rhs = node.operand(1).type();
    const TensorType& out = node.types()[0];
    DotDims d = DimsOf(node);
    if (const auto product = CallMatmulKernel(ctx, d)) return ctx.Set(0, *product);
    TensorType flat_lhs(lhs.dtype, lhs.dims), flat_rhs(rhs.dtype, rhs.dims);
    TensorType flat_out(out.dtype, out.dims);
    if (d.lhs_batch.empty()) MergeDims(&d, &flat_lhs.dims, &flat_rhs.dims, &flat_out.dims);

    const auto reshaped = [&](const std::string& name, const TensorType& from,
                              const TensorType& to) {
      if (from.dims == to.dims) return name;
      return ctx.writer().Assign(fmt::format("stablehlo.reshape {} : ({}) -> {}", name,
                                             stablehlo::TypeText(from), stablehlo::TypeText(to)));
    };
    const std::string lhs_name = reshaped(ctx.operand(0), lhs, flat_lhs);
    const std::string rhs_name = reshaped(ctx.operand(1), rhs, flat_rhs);
    std::string attributes = "<{dot_dimension_numbers = #stablehlo.dot<";
    if (!d.lhs_batch.empty()) {
      attributes += fmt::format("lhs_batching_dimensions = {}, rhs_batching_dimensions = {}, ",
                                stablehlo::IntList(d.lhs_batch), stablehlo::IntList(d.rhs_batch));
    }
    attributes +=
        fmt::format("lhs_contracting_dimensions = {}, rhs_contracting_dimensions = {}>",
                    stablehlo::IntList(d.lhs_contract), stablehlo::IntList(d.rhs_contract));
    const std::string precision =
        node.attrs().String("precision") == "highest" ? "HIGHEST" : "DEFAULT";
    attributes += fmt::format(
        ", precision_config = [#stablehlo<precision {0}>, #stablehlo<precision {0}>]}}>",
        precision);
    const std::string product = ctx.writer().Assign(fmt::format(
        "\"stablehlo.dot_general\"({}, {}) {} : {} -> {}", lhs_name, rhs_name, attributes,
        stablehlo::TypeList({flat_lhs, flat_rhs}), stablehlo::TypeText(flat_out)));
    ctx.Set(0, reshaped(product, flat_out, TensorType(out.dtype, out.dims)));
  }

 private:
  // Turns a product without batch dims into one of tensors of fewer dims, of matrices
  // where it can: neighbors that are both free, or contracted with neighbors, become one
  // dim. XLA's CPU backend takes matrices in any order, but copies operands of more dims
  // into the order [free, contracted].
  static void MergeDims(DotDims* d, Dims* lhs, Dims* rhs, Dims* out) {
    const DotDims from = *d;
    // Where dim `i` of an operand finds its partner, or -1 for a free dim.
    const auto partner = [](int64_t i, const std::vector<int64_t>& own,
                            const std::vector<int64_t>& other) {
      const auto it = std::find(own.begin(), own.end(), i);
      return it == own.end() ? -1 : other[static_cast<size_t>(it - own.begin())];
    };
    // The merged dims of an operand, and for each old dim its new one.
    const auto merged = [&](const Dims& dims, const std::vector<int64_t>& own,
                            const std::vector<int64_t>& other, std::vector<int64_t>* place) {
      Dims result;
      for (size_t i = 0; i < dims.size(); ++i) {
        const int64_t here = partner(static_cast<int64_t>(i), own, other);
        const int64_t before = i == 0 ? -2 : partner(static_cast<int64_t>(i) - 1, own, other);
        const bool joins = here == -1 ? before == -1 : before >= 0 && here == before + 1;
        if (joins) {
          result.back() *= dims[i];
        } else {
          result.push_back(dims[i]);
        }
        place->push_back(static_cast<int64_t>(result.size()) - 1);
      }
      return result;
    };
    std::vector<int64_t> lhs_place, rhs_place;
    *lhs = merged(*lhs, from.lhs_contract, from.rhs_contract, &lhs_place);
    *rhs = merged(*rhs, from.rhs_contract, from.lhs_contract, &rhs_place);
    d->lhs_contract.clear();
    d->rhs_contract.clear();
    for (size_t i = 0; i < from.lhs_contract.size(); ++i) {
      const int64_t l = lhs_place[from.lhs_contract[i]];
      if (Contains(d->lhs_contract, l)) continue;
      d->lhs_contract.push_back(l);
      d->rhs_contract.push_back(rhs_place[from.rhs_contract[i]]);
    }
    out->clear();
    for (int64_t i : FreeDims(static_cast<int>(lhs->size()), {}, d->lhs_contract)) {
      out->push_back((*lhs)[i]);
    }
    for (int64_t i : FreeDims(static_cast<int>(rhs->size()), {}, d->rhs_contract)) {
      out->push_back((*rhs)[i]);
    }
  }

  // Elements that have to be moved to compute einsum(a,b->wanted): a batched
  // product wants its operands as [batch, free, contracted] and [batch,
  // contracted, free] (XLA transposes others into that form; products without
  // batch dims take any order), and a result in another order is transposed.
  static int64_t MovedElements(Value a, const std::string& a_letters, Value b,
                               const std::string& b_letters, const std::string& wanted) {
    std::string batch, a_free, b_free, a_contract, b_contract;
    for (char c : a_letters) {
      const bool shared = b_letters.find(c) != std::string::npos;
      (!shared ? a_free : wanted.find(c) != std::string::npos ? batch : a_contract) += c;
    }
    for (char c : b_letters) {
      const bool shared = a_letters.find(c) != std::string::npos;
      if (!shared) b_free += c;
      if (shared && wanted.find(c) == std::string::npos) b_contract += c;
    }
    int64_t moved = 0;
    if (!batch.empty()) {
      if (a_letters != batch + a_free + a_contract) moved += a.type().num_elements();
      if (b_letters != batch + a_contract + b_free) moved += b.type().num_elements();
    }
    if (batch + a_free + b_free != wanted) {
      int64_t result = 1;
      for (char c : wanted) {
        const size_t i = a_letters.find(c);
        result *= i != std::string::npos ? a.dims()[i] : b.dims()[b_letters.find(c)];
      }
      moved += result;
    }
    return moved;
  }

  // The product of `ct` (letters `out`) and `other` (letters `other_letters`) as
  // the gradient with letters `wanted`, in the operand order that moves less.
  static Value Gradient(Value ct, const std::string& out, Value other,
                        const std::string& other_letters, const std::string& wanted, DType dtype,
                        const std::string& precision) {
    if (MovedElements(other, other_letters, ct, out, wanted) <
        MovedElements(ct, out, other, other_letters, wanted)) {
      return Einsum(fmt::format("{},{}->{}", other_letters, out, wanted), other, ct, dtype,
                    precision);
    }
    return Einsum(fmt::format("{},{}->{}", out, other_letters, wanted), ct, other, dtype,
                  precision);
  }

  static void CheckPairs(const Node& node, const char* kind, const std::vector<int64_t>& lhs_list,
                         const std::vector<int64_t>& rhs_list) {
    const TensorType& lhs = node.operand(0).type();
    const TensorType& rhs = node.operand(1).type();
    if (lhs_list.size() != rhs_list.size()) {
      node.Fail(fmt::format("{} dims come in pairs: lhs has {}, rhs has {}", kind, lhs_list.size(),
                            rhs_list.size()));
    }
    for (size_t i = 0; i < lhs_list.size(); ++i) {
      const int64_t l = lhs_list[i];
      const int64_t r = rhs_list[i];
      if (l < 0 || l >= lhs.rank() || r < 0 || r >= rhs.rank()) {
        node.Fail(fmt::format("{} dim {} of lhs {} or {} of rhs {} is out of range", kind, l,
                              lhs.ToString(), r, rhs.ToString()));
      }
      if (lhs.dims[l] != rhs.dims[r]) {
        node.Fail(fmt::format("{} dims differ: lhs {} dim {} vs rhs {} dim {}", kind,
                              lhs.ToString(), l, rhs.ToString(), r));
      }
    }
  }
};

}  // namespace

const OpDef& DotGeneralOp() {
  static const Def* const def = new Def();
  return *def;
}

Value DotGeneral(Value lhs, Value rhs, const DotDims& dims, std::optional<DType> out_dtype,
                 const std::string& precision) {
  return graph::Apply(DotGeneralOp(), {lhs, rhs},
                      {{"lhs_batch", dims.lhs_batch},
                       {"rhs_batch", dims.rhs_batch},
                       {"lhs_contract", dims.lhs_contract},
                       {"rhs_contract", dims.rhs_contract},
                       {"out_dtype", out_dtype.value_or(lhs.dtype())},
                       {"precision", precision}});
}

Value Einsum(const std::string& equation, Value lhs, Value rhs, std::optional<DType> out_dtype,
             const std::string& precision) {
  auto fail = [&](const std::string& message) {
    throw GraphError(absl::StatusCode::kInvalidArgument, "einsum",
                     fmt::format("\"{}\" with lhs {} and rhs {}: {}", equation,
                                 lhs.type().ToString(), rhs.type().ToString(), message),
                     lhs.graph().scope());
  };
  const size_t comma = equation.find(',');
  const size_t arrow = equation.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    fail("the form is \"ab,bc->ac\"");
  }
  const std::string a = equation.substr(0, comma);
  const std::string b = equation.substr(comma + 1, arrow - comma - 1);
  const std::string out = equation.substr(arrow + 2);
  if (static_cast<int>(a.size()) != lhs.rank() || static_cast<int>(b.size()) != rhs.rank()) {
    fail("one letter per dimension is needed");
  }
  for (const std::string& part : {a, b, out}) {
    for (char c : part) {
      if (std::count(part.begin(), part.end(), c) > 1) fail(fmt::format("'{}' is repeated", c));
    }
  }
  DotDims d;
  std::string batch, free;
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t j = b.find(a[i]);
    const bool in_out = out.find(a[i]) != std::string::npos;
    if (j == std::string::npos) {
      if (!in_out) fail(fmt::format("'{}' is in one operand only and not in the result", a[i]));
      free += a[i];
    } else if (in_out) {
      d.lhs_batch.push_back(static_cast<int64_t>(i));
      d.rhs_batch.push_back(static_cast<int64_t>(j));
      batch += a[i];
    } else {
      d.lhs_contract.push_back(static_cast<int64_t>(i));
      d.rhs_contract.push_back(static_cast<int64_t>(j));
    }
  }
  for (char c : b) {
    if (a.find(c) != std::string::npos) continue;
    if (out.find(c) == std::string::npos) {
      fail(fmt::format("'{}' is in one operand only and not in the result", c));
    }
    free += c;
  }
  const std::string natural = batch + free;
  if (out.size() != natural.size()) fail("the result names a letter that no operand has");
  std::vector<int64_t> permutation;
  for (char c : out) {
    const size_t i = natural.find(c);
    if (i == std::string::npos) fail("the result names a letter that no operand has");
    permutation.push_back(static_cast<int64_t>(i));
  }
  return Transpose(DotGeneral(lhs, rhs, d, out_dtype, precision), permutation);
}

}  // namespace mw::ops
