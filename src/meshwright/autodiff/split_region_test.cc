#include "meshwright/autodiff/split_region.h"

#include <gtest/gtest.h>

#include <functional>

#include "meshwright/ops/add.h"
#include "meshwright/ops/constrain.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/name.h"

namespace mw::autodiff {
namespace {

using graph::Graph;
using graph::Value;

Value Pinned(Value x) { return ops::Constrain(x, {"a", "b"}, {"", "b"}); }

// The ops whose results are kept for the backward part of f(x · w, x · a), where x, w and a are
// body parameters.
std::vector<std::string> KeptOfTwo(const std::function<Value(Value product, Value other)>& f,
                                   const std::string& policy) {
  Graph body;
  const Value x = body.AddParameter(TensorType(DType::kF32, {4, 4}), "x");
  const Value w = body.AddParameter(TensorType(DType::kF32, {4, 4}), "w");
  const Value a = body.AddParameter(TensorType(DType::kF32, {4, 4}), "a");
  body.SetOutputs({f(ops::Einsum("td,df->tf", x, w), ops::Einsum("td,df->tf", x, a))});
  const ops::RegionSplit split = SplitRegion(body, {true, true, true}, {true}, policy);
  split.forward->Verify();
  split.backward->Verify();
  std::vector<std::string> names;
  for (size_t i = 1; i < split.forward->outputs().size(); ++i) {
    names.emplace_back(split.forward->outputs()[i].node->op_name());
  }
  EXPECT_EQ(static_cast<int>(names.size()), split.num_residuals);
  return names;
}

std::vector<std::string> KeptOps(const std::function<Value(Value product)>& f,
                                 const std::string& policy) {
  return KeptOfTwo([&](Value product, Value) { return f(product); }, policy);
}

using Names = std::vector<std::string>;

TEST(SplitRegionTest, WhatIsPinnedIsKeptAsPinned) {
  const auto square = [](Value y) {
    const Value p = Pinned(y);
    return ops::Mul(p, p);
  };
  EXPECT_EQ(KeptOps(square, "none"), Names{"constrain"});
  EXPECT_EQ(KeptOps(square, "full"), Names{});
}

TEST(SplitRegionTest, NoValueIsKeptTwiceForAnIdentity) {
  EXPECT_EQ(KeptOps([](Value y) { return ops::Mul(y, Pinned(y)); }, "none"), Names{"dot_general"});
  EXPECT_EQ(KeptOps([](Value y) { return ops::Mul(Pinned(y), Pinned(y)); }, "none"),
            Names{"dot_general"});
  EXPECT_EQ(KeptOps([](Value y) { return ops::Mul(ops::Name(y, "n"), Pinned(y)); }, "none"),
            Names{"dot_general"});
}

TEST(SplitRegionTest, ANamedValueIsKeptAsPinnedToo) {
  const auto before = [](Value y) {
    const Value p = Pinned(ops::Name(y, "n"));
    return ops::Mul(p, p);
  };
  const auto after = [](Value y) {
    const Value p = ops::Name(Pinned(y), "n");
    return ops::Mul(p, p);
  };
  EXPECT_EQ(KeptOps(before, "names:n"), Names{"constrain"});
  EXPECT_EQ(KeptOps(after, "names:n"), Names{"name"});
  EXPECT_EQ(KeptOps(after, "names:other"), Names{});
}

// As of a linear layer and its adapter.
TEST(SplitRegionTest, ASumIsKeptInPlaceOfItsTerms) {
  const auto sum = [](Value y, Value z) { return ops::Add(y, ops::Mul(z, 2.0)); };
  const auto square = [](Value v) { return ops::Mul(v, v); };
  EXPECT_EQ(KeptOfTwo([&](Value y, Value z) { return square(sum(y, z)); }, "none"), Names{"add"});
  EXPECT_EQ(KeptOfTwo([&](Value y, Value z) { return square(ops::Name(sum(y, z), "n")); }, "none"),
            Names{"name"});
  EXPECT_EQ(KeptOfTwo([&](Value y, Value z) { return square(sum(Pinned(y), Pinned(z))); }, "none"),
            Names{"add"});
  // Something else reads a term, so that the sum would be one more.
  const Names both = {"dot_general", "dot_general"};
  const auto term_too = [&](Value y, Value z) { return ops::Mul(square(sum(y, z)), z); };
  EXPECT_EQ(KeptOfTwo(term_too, "none"), both);
  const auto pinned_too = [&](Value y, Value z) { return ops::Mul(square(sum(y, z)), Pinned(z)); };
  EXPECT_EQ(KeptOfTwo(pinned_too, "none"), both);
  // A value of one term is of its size; in half the bits it is not.
  EXPECT_EQ(KeptOps([&](Value y) { return square(ops::Mul(y, 2.0)); }, "none"),
            Names{"dot_general"});
  EXPECT_EQ(KeptOps([&](Value y) { return square(ops::Convert(y, DType::kBF16)); }, "none"),
            Names{"convert"});
}

}  // namespace
}  // namespace mw::autodiff
