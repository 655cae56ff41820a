#include "meshwright/spmd/scatter_sums.h"

#include <gtest/gtest.h>

#include "meshwright/ops/all_reduce.h"
#include "meshwright/spmd/same_results_for_test.h"

namespace mw::spmd {
namespace {

using graph::Graph;
using graph::Value;

TEST(ScatterSumsTest, SumsWhatIsLargeInParts) {
  Graph graph;
  const Value large = graph.AddParameter(TensorType(DType::kF32, {8, 16}), "large");
  const Value small = graph.AddParameter(TensorType(DType::kF32, {4, 16}), "small");
  const Value odd = graph.AddParameter(TensorType(DType::kF32, {9, 16}), "odd");
  graph.SetOutputs({ops::AllReduce(large, kAll), ops::AllReduce(small, kAll),
                    ops::AllReduce(odd, kAll), ops::AllReduce(large, kAll, "max")});
  const std::unique_ptr<Graph> parts = ScatterSums(graph, {"data"}, large.type().num_bytes());
  parts->Verify();
  ExpectSame(graph, *parts);
  EXPECT_EQ(Count(*parts, "all_reduce", 1), 3);
  EXPECT_EQ(Count(*parts, "reduce_scatter", 1), 1);
  EXPECT_EQ(Count(*parts, "all_gather", 1), 1);
  EXPECT_EQ(TakeCensus(*ScatterSums(graph, {"tensor"}, 1)), TakeCensus(graph));
}

}  // namespace
}  // namespace mw::spmd
