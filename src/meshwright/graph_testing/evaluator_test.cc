// What only the evaluator has; that its ops are right is shown by autodiff/op_registry_test.cc
// (against JAX) and spmd/partition_mesh_test.cc (collectives, against XLA).
#include "meshwright/graph_testing/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/ops/add.h"
#include "meshwright/ops/all_gather.h"
#include "meshwright/ops/all_reduce.h"
#include "meshwright/ops/all_to_all.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/custom_call.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce_scatter.h"
#include "meshwright/ops/reshard.h"

namespace mw {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using graph::Graph;
using graph::Value;

std::shared_ptr<const ExactTensor> Floats(std::vector<double> values) {
  return std::make_shared<const ExactTensor>(ExactTensor{std::move(values), {}});
}

// Devices 0 and 2, and 1 and 3.
const ops::CollectiveGroups kPairs = {{{0, 2}, {1, 3}}, {"data"}};

TEST(EvaluatorTest, CollectivesSeeTheirGroups) {
  Graph graph;
  const Value x = graph.AddParameter(TensorType(DType::kF32, {2, 2}), "x");
  graph.SetOutputs({ops::AllReduce(x, kPairs), ops::AllReduce(x, kPairs, "max"),
                    ops::AllGather(x, 1, kPairs), ops::ReduceScatter(x, 0, kPairs),
                    ops::AllToAll(x, 0, 1, kPairs)});
  DeviceTensors devices;
  for (double d = 0; d < 4; ++d) {
    devices.push_back(Floats({10 * d, 10 * d + 1, 10 * d + 2, 10 * d + 3}));
  }
  const auto run = Evaluate(graph, {devices}, 4);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto at = [&](size_t output, size_t device) { return (*run)[output][device]->floats; };
  EXPECT_THAT(at(0, 1), ElementsAre(40, 42, 44, 46));
  EXPECT_THAT(at(0, 2), ElementsAre(20, 22, 24, 26));
  EXPECT_THAT(at(1, 0), ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(at(2, 3), ElementsAre(10, 11, 30, 31, 12, 13, 32, 33));
  EXPECT_THAT(at(3, 0), ElementsAre(20, 22));
  EXPECT_THAT(at(3, 2), ElementsAre(24, 26));
  EXPECT_THAT(at(4, 0), ElementsAre(0, 1, 20, 21));
  EXPECT_THAT(at(4, 2), ElementsAre(2, 3, 22, 23));
}

TEST(EvaluatorTest, FloatsAreNotRoundedAndIntegersWrap) {
  Graph graph;
  const Value x = graph.AddParameter(TensorType(DType::kF32, {1}), "x");
  const Value n = graph.AddParameter(TensorType(DType::kU8, {1}), "n");
  graph.SetOutputs(
      {ops::Convert(ops::Convert(x, DType::kBF16), DType::kF32), ops::Add(n, n), ops::Mul(x, x)});
  const double fine = 1 + 0x1p-40;
  const auto run = Evaluate(
      graph, {{Floats({fine})}, {std::make_shared<ExactTensor>(ExactTensor{{}, {200}})}}, 1);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ((*run)[0][0]->floats[0], fine);
  EXPECT_EQ((*run)[1][0]->integers[0], 144);
  EXPECT_EQ((*run)[2][0]->floats[0], fine * fine);
}

TEST(EvaluatorTest, ReplicasThatDifferAreFound) {
  const Mesh mesh = *Mesh::Create(*Mesh::ParseAxes("data=2,tensor=2"));
  const TensorType type(DType::kF32, {2}, {{{"tensor"}}, {}, {}});
  EXPECT_EQ(ReplicaDifference({Floats({1}), Floats({2}), Floats({1}), Floats({2})}, type, mesh),
            "");
  EXPECT_EQ(ReplicaDifference({Floats({1}), Floats({2}), Floats({1}), Floats({3})}, type, mesh),
            "devices 1 and 3 hold different elements");
}

TEST(EvaluatorTest, RefusesWhatItCannotRun) {
  const auto refusal = [](const auto& build, const DeviceTensors& input, int64_t num_devices) {
    Graph graph;
    const Value x = graph.AddParameter(TensorType(DType::kF32, {2}), "x");
    graph.SetOutputs({build(x)});
    return std::string(Evaluate(graph, {input}, num_devices).status().message());
  };
  const auto own = [](Value x) { return ops::Add(x, x); };
  const DeviceTensors two = {Floats({1, 2}), Floats({1, 2})};
  EXPECT_THAT(
      refusal([](Value x) { return ops::CustomCall(x.graph(), "mine", {x}, {x.type()})[0]; },
              {Floats({1, 2})}, 1),
      HasSubstr("[custom_call] has no evaluation"));
  EXPECT_THAT(refusal([](Value x) { return ops::AllReduce(x, kPairs); }, two, 2),
              HasSubstr("the groups take in 4 devices, but the program runs on 2"));
  EXPECT_THAT(refusal([](Value x) { return ops::Reshard(x, {}); }, two, 2),
              HasSubstr("[reshard] is of a global program"));
  EXPECT_EQ(refusal(own, two, 4), "parameter x is given for 2 devices of 4");
  EXPECT_EQ(refusal(own, {Floats({1})}, 1), "parameter x f32[2] is given 1 elements of it");
}

}  // namespace
}  // namespace mw
