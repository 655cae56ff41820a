#include "meshwright/autodiff/split_region.h"

#include <gtest/gtest.h>

#include <functional>

#include "meshwright/ops/constrain.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/name.h"

namespace mw::autodiff {
namespace {

using graph::Graph;
using graph::Value;

Value Pinned(Value x) { return ops::Constrain(x, {"a", "b"}, {"", "b"}); }

// The ops whose results are kept for the backward part of x · w → f(x · w), where x
// and w are body parameters.
std::vector<std::string> KeptOps(const std::function<Value(Value product)>& f,
                                 const std::string& policy) {
  Graph body;
  const Value x = body.AddParameter(TensorType(DType::kF32, {4, 4}), "x");
  const Value w = body.AddParameter(TensorType(DType::kF32, {4, 4}), "w");
  body.SetOutputs({f(ops::Einsum("td,df->tf", x, w))});
  const ops::RegionSplit split = SplitRegion(body, {true, true}, {true}, policy);
  split.forward->Verify();
  split.backward->Verify();
  std::vector<std::string> names;
  for (size_t i = 1; i < split.forward->outputs().size(); ++i) {
    names.emplace_back(split.forward->outputs()[i].node->op_name());
  }
  EXPECT_EQ(static_cast<int>(names.size()), split.num_residuals);
  return names;
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

}  // namespace
}  // namespace mw::autodiff
