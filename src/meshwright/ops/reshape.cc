#include "meshwright/ops/reshape.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace mw::ops {
namespace {

// nullopt when it does not fit.
std::optional<int64_t> Product(const Dims& dims) {
  int64_t product = 1;
  for (int64_t d : dims) {
    if (__builtin_mul_overflow(product, d, &product)) return std::nullopt;
  }
  return product;
}

class Def final : public OpDef {
 public:
  std::string_view name() const override { return "reshape"; }

  std::vector<TensorType> InferTypes(const Node& node) const override {
    const TensorType& x = node.operand(0).type();
    const Dims& dims = node.attrs().Ints("dims");
    for (int64_t d : dims) {
      if (d < 0) node.Fail(fmt::format("dims {} hold a negative size", DimsToString(dims)));
    }
    const std::optional<int64_t> count = Product(dims);
    if (count != x.num_elements()) {
      node.Fail(fmt::format("{} has {} elements but dims {} have {}", x.ToString(),
                            x.num_elements(), DimsToString(dims),
                            count ? fmt::format("{}", *count) : "too many"));
    }
    return {TensorType(x.dtype, dims)};
  }

  // kSpecial when a dim is split or merged: one factor would then be a part of a
  // dim. The partitioner takes the groups of ReshapeGroups and gives the axes of
  // a group to its outermost dim on the other side, as far as they divide it.
  ShardingRule Sharding(const Node& node) const override {
    const Dims& from = node.operand(0).dims();
    const Dims& to = node.types()[0].dims;
    std::string in(from.size(), '1');
    std::string out(to.size(), '1');
    char next = 'a';
    for (const ReshapeGroup& group : ReshapeGroups(from, to)) {
      if (group.from.size() != 1 || group.to.size() != 1) return ShardingRule::Special();
      in[group.from[0]] = out[group.to[0]] = next++;
    }
    return ShardingRule::Factors({in}, {out}).Sum({0});
  }

  Attributes LocalAttributes(const Node& node, const std::vector<Dims>& local) const override {
    Attributes attrs = node.attrs();
    attrs.Set("dims", local[0]);
    return attrs;
  }

  bool cheap_to_recompute() const override { return true; }

  void Vjp(VjpContext& ctx) const override {
    ctx.Add(0, Reshape(ctx.ct(), ctx.node().operand(0).dims()));
  }

  void Lower(LowerContext& ctx) const override { ctx.EmitGeneric("stablehlo.reshape"); }
};

}  // namespace

const OpDef& ReshapeOp() {
  static const Def* const def = new Def();
  return *def;
}

Value Reshape(Value x, const Dims& dims) {
  Dims resolved = dims;
  const auto open = std::find(resolved.begin(), resolved.end(), -1);
  if (open != resolved.end()) {
    *open = 1;
    const int64_t known = Product(resolved).value_or(0);
    // A size that does not divide stays -1, which the shape rule refuses.
    const bool divides = known > 0 && x.type().num_elements() % known == 0;
    *open = divides ? x.type().num_elements() / known : -1;
  }
  if (x.dims() == resolved) return x;
  return graph::Apply(ReshapeOp(), {x}, {{"dims", resolved}});
}

std::vector<ReshapeGroup> ReshapeGroups(const Dims& from, const Dims& to) {
  std::vector<ReshapeGroup> groups;
  if (NumElements(from) == 0) {
    ReshapeGroup all;
    all.from.resize(from.size());
    all.to.resize(to.size());
    std::iota(all.from.begin(), all.from.end(), 0);
    std::iota(all.to.begin(), all.to.end(), 0);
    groups.push_back(std::move(all));
    return groups;
  }
  size_t i = 0;
  size_t j = 0;
  auto skip_ones = [](const Dims& dims, size_t* k) {
    while (*k < dims.size() && dims[*k] == 1) ++*k;
  };
  for (skip_ones(from, &i), skip_ones(to, &j); i < from.size() && j < to.size();
       skip_ones(from, &i), skip_ones(to, &j)) {
    ReshapeGroup group;
    int64_t from_size = from[i];
    int64_t to_size = to[j];
    group.from.push_back(static_cast<int64_t>(i++));
    group.to.push_back(static_cast<int64_t>(j++));
    while (from_size != to_size) {
      if (from_size < to_size) {
        if (from[i] != 1) group.from.push_back(static_cast<int64_t>(i));
        from_size *= from[i++];
      } else {
        if (to[j] != 1) group.to.push_back(static_cast<int64_t>(j));
        to_size *= to[j++];
      }
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace mw::ops
