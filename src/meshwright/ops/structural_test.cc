// Shape rules and sharding rules of the ops that move elements, and custom calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "meshwright/graph_testing/lower_nodes.h"
#include "meshwright/ops/broadcast_in_dim.h"
#include "meshwright/ops/concatenate.h"
#include "meshwright/ops/custom_call.h"
#include "meshwright/ops/iota.h"
#include "meshwright/ops/name.h"
#include "meshwright/ops/optimization_barrier.h"
#include "meshwright/ops/pad.h"
#include "meshwright/ops/reshape.h"
#include "meshwright/ops/reverse.h"
#include "meshwright/ops/slice.h"
#include "meshwright/ops/stop_gradient.h"
#include "meshwright/testing/golden.h"

namespace mw::ops {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

Value Input(Graph& g, Dims dims) {
  return g.AddParameter(TensorType(DType::kF32, std::move(dims)), "x");
}

std::string ErrorOf(const std::function<void(Graph&)>& build) {
  Graph g;
  try {
    build(g);
  } catch (const GraphError& e) {
    EXPECT_EQ(e.code(), absl::StatusCode::kInvalidArgument);
    return e.what();
  }
  return "nothing was thrown";
}

// "operands->result whole=…", or the kind's number for rules without factors.
std::string RuleOf(Value v) {
  const ShardingRule rule = DefOf(*v.node).Sharding(*v.node);
  if (rule.kind != ShardingRule::Kind::kFactors) {
    return rule.kind == ShardingRule::Kind::kSpecial ? "special" : "other";
  }
  std::string text;
  for (const std::string& operand : rule.operands) text += (text.empty() ? "" : ",") + operand;
  text += "->" + rule.results[0];
  return rule.whole.empty() ? text : text + " whole=" + rule.whole;
}

TEST(Structural, RejectionNamesOpAndShapes) {
  EXPECT_EQ(ErrorOf([](Graph& g) {
              BroadcastInDim(Input(g, {2, 3}), {2, 4}, {0, 1});
            }),
            "[broadcast_in_dim] f32[2,3] does not broadcast to [2,4] along dims [0,1]: dim 1 has "
            "size 3, not 1 or 4");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              BroadcastInDim(Input(g, {2, 3}), {3, 2}, {1, 0});
            }),
            "[broadcast_in_dim] broadcast_dimensions [1,0] are not increasing dims of [3,2]");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              BroadcastTo(Input(g, {2, 3}), {3});
            }),
            "[broadcast_in_dim] f32[2,3] has more dims than [3]; a broadcast only adds dims");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              Reshape(Input(g, {2, 3}), {4});
            }),
            "[reshape] f32[2,3] has 6 elements but dims [4] have 4");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              Slice(Input(g, {2, 3}), {0, 2}, {2, 1});
            }),
            "[slice] starts [0,2] limits [2,1] strides [1,1] do not fit f32[2,3]: dim 1 needs "
            "0 <= start <= limit <= 3 and stride >= 1");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              SliceInDim(Input(g, {2, 3}), -3, 0, 1);
            }),
            "[slice] dim -3 is out of range for f32[2,3]");
  EXPECT_EQ(ErrorOf([](Graph& g) { Pad(Input(g, {3}), Input(g, {}), {-2}, {-2}, {0}); }),
            "[pad] low [-2] high [-2] interior [0] do not fit f32[3]: dim 0 needs interior >= 0 "
            "and a size >= 0");
  EXPECT_EQ(ErrorOf([](Graph& g) { Pad(Input(g, {3}), Input(g, {1}), {0}, {0}, {0}); }),
            "[pad] the padding value is f32[1] but f32[3] needs a scalar of its dtype");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              Concatenate({Input(g, {2, 3}), Input(g, {2})}, 0);
            }),
            "[concatenate] operand 1 is f32[2] but operand 0 is f32[2,3]: they may differ in dim 0 "
            "only");
  EXPECT_EQ(ErrorOf([](Graph&) { Concatenate({}, 0); }),
            "[concatenate] no values were given; at least one is needed");
  EXPECT_EQ(ErrorOf([](Graph& g) { Concatenate({Input(g, {2})}, 1); }),
            "[concatenate] dim 1 is out of range for f32[2]");
  EXPECT_EQ(ErrorOf([](Graph& g) {
              Reverse(Input(g, {2, 3}), {0, 2});
            }),
            "[reverse] dims [0,2] are not distinct dims of f32[2,3]");
  EXPECT_EQ(ErrorOf([](Graph& g) { Iota(g, DType::kPred, {2}, 0); }),
            "[iota] the dtype is pred but the op counts in an integer or float type");
  EXPECT_EQ(ErrorOf([](Graph& g) { Name(Input(g, {2}), ""); }),
            "[name] the name of f32[2] is empty");
}

TEST(Structural, SizesThatOverflowAreRefused) {
  const int64_t huge = int64_t{1} << 62;
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(ErrorOf([&](Graph& g) {
                Reshape(Input(g, {4}), {huge, huge, 4});
              }),
              HasSubstr("have too many"));
  EXPECT_THAT(ErrorOf([&](Graph& g) { Pad(Input(g, {4}), 0.0, {most}, {most}); }),
              HasSubstr("do not fit f32[4]"));
  EXPECT_THAT(ErrorOf([&](Graph& g) { Pad(Input(g, {4}), Input(g, {}), {0}, {0}, {most}); }),
              HasSubstr("do not fit f32[4]"));
  EXPECT_THAT(ErrorOf([&](Graph& g) { Slice(Input(g, {4}), {-most}, {4}); }),
              HasSubstr("do not fit f32[4]"));
}

TEST(Structural, ResultDims) {
  Graph g;
  const Value x = Input(g, {4, 6});
  EXPECT_EQ(BroadcastTo(x, {2, 4, 6}).dims(), (Dims{2, 4, 6}));
  EXPECT_EQ(Reshape(x, {3, -1, 2}).dims(), (Dims{3, 4, 2}));
  EXPECT_EQ(Slice(x, {1, 0}, {4, 6}, {2, 4}).dims(), (Dims{2, 2}));
  EXPECT_EQ(Slice(x, {2, 0}, {2, 6}).dims(), (Dims{0, 6}));
  EXPECT_EQ(Pad(x, Input(g, {}), {1, -2}, {0, 0}, {2, 0}).dims(), (Dims{11, 4}));
  EXPECT_EQ(Concatenate({x, x, Input(g, {4, 1})}, -1).dims(), (Dims{4, 13}));
  EXPECT_EQ(Iota(g, DType::kS32, {2, 3}, 1).type(), TensorType(DType::kS32, {2, 3}));
  EXPECT_TRUE(OptimizationBarrier({}).empty());
}

TEST(Structural, NothingToDoReturnsTheOperand) {
  Graph g;
  const Value x = Input(g, {4, 6});
  EXPECT_EQ(BroadcastTo(x, {4, 6}), x);
  EXPECT_EQ(Reshape(x, {4, -1}), x);
  EXPECT_EQ(Slice(x, {0, 0}, {4, 6}), x);
  EXPECT_EQ(Pad(x, 0.0, {0, 0}, {0, 0}), x);
  EXPECT_EQ(Concatenate({x}, 1), x);
  EXPECT_EQ(Reverse(x, {}), x);
}

TEST(Structural, ShardingRules) {
  Graph g;
  const Value x = Input(g, {4, 6});
  EXPECT_EQ(RuleOf(BroadcastTo(x, {2, 4, 6})), "bc->abc");
  EXPECT_EQ(RuleOf(BroadcastTo(Input(g, {4, 1}), {4, 6})), "a1->ab");
  EXPECT_EQ(RuleOf(Reshape(x, {1, 4, 6, 1})), "ab->1ab1");
  EXPECT_EQ(RuleOf(Reshape(x, {4, 2, 3})), "special");
  EXPECT_EQ(RuleOf(Slice(x, {0, 1}, {4, 3})), "ab->ab whole=b");
  EXPECT_EQ(RuleOf(Pad(x, 0.0, {1, 0}, {0, 0})), "ab,->ab whole=a");
  EXPECT_EQ(RuleOf(Concatenate({x, x}, 0)), "ab,ab->ab whole=a");
  EXPECT_EQ(RuleOf(Reverse(x, {1})), "ab->ab whole=b");
  EXPECT_EQ(RuleOf(OptimizationBarrier({x})[0]), "special");
}

std::string GroupsText(const Dims& from, const Dims& to) {
  std::string text;
  for (const ReshapeGroup& group : ReshapeGroups(from, to)) {
    text += DimsToString(group.from) + DimsToString(group.to) + " ";
  }
  return text;
}

TEST(Structural, ReshapeGroupsAreTheSmallest) {
  EXPECT_EQ(GroupsText({4, 6, 5}, {24, 5}), "[0,1][0] [2][1] ");
  EXPECT_EQ(GroupsText({4, 6}, {4, 2, 3}), "[0][0] [1][1,2] ");
  EXPECT_EQ(GroupsText({4, 6}, {3, 8}), "[0,1][0,1] ");
  EXPECT_EQ(GroupsText({1, 4, 1, 6}, {4, 6, 1}), "[1][0] [3][1] ");
  EXPECT_EQ(GroupsText({2, 1, 3}, {6}), "[0,2][0] ");
  EXPECT_EQ(GroupsText({1, 1}, {}), "");
  EXPECT_EQ(GroupsText({0, 3}, {5, 0}), "[0,1][0,1] ");
}

TEST(CustomCall, RejectsWhatItCannotPass) {
  const TensorType out(DType::kF32, {2});
  auto error = [&](std::string target, std::vector<TensorType> types, CustomCallOptions options) {
    return ErrorOf([&](Graph& g) { CustomCall(g, target, {Input(g, {2})}, types, options); });
  };
  EXPECT_EQ(error("", {out}, {}), "[custom_call] the target's name is empty");
  EXPECT_EQ(error("f", {}, {}), "[custom_call] target f has no result type");
  EXPECT_EQ(error("f", {out}, {.config = {{"a b", int64_t{1}}}}),
            "[custom_call] target f: config name \"a b\" is not an identifier");
  EXPECT_EQ(error("f", {out}, {.config = {{"eps", std::numeric_limits<double>::infinity()}}}),
            "[custom_call] target f: config value eps is not finite");
  EXPECT_EQ(error("f", {out}, {.output_operand_aliases = {1}}),
            "[custom_call] target f: result 0 takes over operand 1 of 1");
  EXPECT_EQ(error("f", {TensorType(DType::kBF16, {2})}, {.output_operand_aliases = {0}}),
            "[custom_call] target f: result 0 bf16[2] takes over operand 0 f32[2]: the types "
            "differ");
  EXPECT_EQ(error("f", {out}, {.sharding = ShardingRule::Factors({"ab"}, {"a"})}),
            "[custom_call] target f: the sharding rule \"ab\" needs one letter for each dim of "
            "operand 0 f32[2]");
}

TEST(CustomCall, ShardingRuleIsKept) {
  Graph g;
  const Value x = Input(g, {2, 3});
  EXPECT_EQ(RuleOf(CustomCall(g, "f", {x}, {x.type()})[0]), "other");
  ShardingRule rule = ShardingRule::Factors({"ab"}, {"ab"});
  rule.whole = "b";
  EXPECT_EQ(RuleOf(CustomCall(g, "f", {x}, {x.type()}, {.sharding = rule})[0]), "ab->ab whole=b");
}

TEST(CustomCall, LoweringOfItsOptions) {
  Graph g;
  const Value x = Input(g, {2, 3});
  const Value scalar = Input(g, {});
  CustomCallOptions options;
  options.config = {{"causal", true},  {"eps", 1e-6},         {"heads", int64_t{4}},
                    {"kind", "a\"\n"}, {"sizes", Ints{1, 2}}, {"scales", std::vector<double>{0.1}}};
  options.output_operand_aliases = {0, -1};
  std::vector<Value> outputs =
      CustomCall(g, "mw.example", {x, scalar}, {x.type(), scalar.type()}, options);
  outputs.push_back(CustomCall(g, "mw.one", {x}, {x.type()}, {.output_operand_aliases = {0}})[0]);
  g.SetOutputs(outputs);
  ExpectGolden(LowerNodes(g), "src/meshwright/ops/testdata/golden/custom_call.mlir");
}

}  // namespace
}  // namespace mw::ops
