// What stands in programs of several devices only: refusals and lowerings. That they
// compute what they should is shown by the mesh tests of spmd.
#include "meshwright/ops/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/compile/lower.h"
#include "meshwright/ops/all_gather.h"
#include "meshwright/ops/all_reduce.h"
#include "meshwright/ops/all_to_all.h"
#include "meshwright/ops/reduce_scatter.h"
#include "meshwright/ops/reshard.h"
#include "meshwright/testing/golden.h"

namespace mw::ops {
namespace {

using ::testing::HasSubstr;

const CollectiveGroups kPairs = {{{0, 2}, {1, 3}}, {"data"}};

std::string Refusal(const std::function<void(Value)>& build) {
  Graph graph;
  const Value x = graph.AddParameter(TensorType(DType::kF32, {4, 6}), "x");
  try {
    build(x);
  } catch (const GraphError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CollectiveTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(Refusal([](Value x) {
                AllReduce(x, {{{0, 1}, {1, 2}}, {}});
              }),
              HasSubstr("every device from 0 on, each once"));
  EXPECT_THAT(Refusal([](Value x) { AllReduce(x, kPairs, "mean"); }),
              HasSubstr("kind mean is not add"));
  EXPECT_THAT(Refusal([](Value x) { AllGather(x, 2, kPairs); }), HasSubstr("dim 2 is not a dim"));
  EXPECT_THAT(Refusal([](Value x) {
                ReduceScatter(x, 0, {{{0, 1, 2}}, {}});
              }),
              HasSubstr("is not a multiple of the group size 3"));
  EXPECT_THAT(Refusal([](Value x) { AllToAll(x, 0, 5, kPairs); }), HasSubstr("dim 5 is not a dim"));
  EXPECT_THAT(Refusal([](Value x) {
                Reshard(x, {{{}, {}, {"data"}}, {}, {}});
              }),
              HasSubstr("has more dims than"));
}

TEST(CollectiveTest, LoweringMatchesGolden) {
  Graph graph;
  const Value x = graph.AddParameter(TensorType(DType::kF32, {4, 6}), "x");
  graph.SetOutputs({AllReduce(x, kPairs), AllReduce(x, kPairs, "max"), AllGather(x, 1, kPairs),
                    ReduceScatter(x, 0, kPairs), AllToAll(x, 0, 1, kPairs)});
  graph.Verify();
  EXPECT_EQ(graph.outputs()[2].dims(), (Dims{4, 12}));
  EXPECT_EQ(graph.outputs()[3].dims(), (Dims{2, 6}));
  EXPECT_EQ(graph.outputs()[4].dims(), (Dims{2, 12}));
  ExpectGolden(compile::LowerToStableHlo(graph, "collectives", 4),
               "src/meshwright/ops/testdata/golden/collectives.mlir");
}

TEST(CollectiveTest, ReshardKeepsItsSpecAndItsGradientIsReduced) {
  const PartitionSpec spec = {{{"data", "fsdp"}, {}}, {"tensor"}, {}};
  Graph forward;
  const Value x = forward.AddParameter(TensorType(DType::kF32, {4, 6}), "x");
  const Value y = Reshard(x, spec);
  EXPECT_EQ(ReshardSpec(*y.node), spec);
  forward.SetOutputs({y});
  Graph graph;
  const Value argument = graph.AddParameter(x.type(), "x");
  const Value cotangent = graph.AddParameter(x.type(), "cotangent");
  const auto result = autodiff::BuildVjp(graph, forward, {argument}, {0}, {cotangent});
  ASSERT_EQ(result.gradients[0].node->op_name(), "reshard");
  EXPECT_EQ(ReshardSpec(*result.gradients[0].node).dims, spec.dims);
  EXPECT_TRUE(ReshardSpec(*result.gradients[0].node).unreduced.empty());
}

}  // namespace
}  // namespace mw::ops
