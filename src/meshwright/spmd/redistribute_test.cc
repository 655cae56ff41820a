#include "meshwright/spmd/redistribute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "meshwright/spmd/census.h"

namespace mw::spmd {
namespace {

using ::testing::ElementsAre;

// The ops that sum f32[dims] over fsdp=8 and leave it sharded along its last dim.
std::vector<std::string> Ops(const Dims& dims, Census* census) {
  const Mesh mesh = *Mesh::Create(*Mesh::ParseAxes("fsdp=8"));
  graph::Graph graph;
  const graph::Value x = graph.AddParameter(TensorType(DType::kF32, dims), "x");
  PartitionSpec from, to;
  from.unreduced = {"fsdp"};
  to.dims.resize(dims.size());
  to.dims.back() = {"fsdp"};
  const graph::Value sum = Redistribute(x, dims, from, to, mesh, {});
  Dims local = dims;
  local.back() /= 8;
  EXPECT_EQ(sum.dims(), local);
  graph.SetOutputs({sum}, {"sum"});
  *census = TakeCensus(graph);
  std::vector<std::string> ops;
  for (const auto& node : graph.nodes()) {
    if (!node->is_parameter()) ops.emplace_back(node->op_name());
  }
  return ops;
}

TEST(RedistributeTest, ScattersVectorsAndVeryLargeTensorsByTheirFirstDim) {
  Census census;
  EXPECT_THAT(Ops({28, 3072, 1024}, &census), ElementsAre("reduce_scatter"));
  EXPECT_THAT(Ops({1024}, &census), ElementsAre("reshape", "reduce_scatter", "reshape"));
  // An embedding's gradient.
  EXPECT_THAT(Ops({151936, 1024}, &census),
              ElementsAre("reshape", "transpose", "reduce_scatter", "reshape"));
  ASSERT_EQ(census.size(), 1U);
  EXPECT_EQ(census[0].bytes, int64_t{151936} * 1024 * 4 / 8 * 7);
}

}  // namespace
}  // namespace mw::spmd
