#include "meshwright/spmd/delay_reductions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "meshwright/ops/add.h"
#include "meshwright/ops/all_reduce.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/optimization_barrier.h"
#include "meshwright/ops/reduce_scatter.h"
#include "meshwright/ops/scan.h"
#include "meshwright/ops/transpose.h"
#include "meshwright/spmd/census.h"
#include "meshwright/spmd/same_results_for_test.h"

namespace mw::ops {
const OpDef& ScanOp();  // ops/op_list.inc
}  // namespace mw::ops

namespace mw::spmd {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

constexpr int64_t kLayers = 5;

// A loop that stacks `body` of what it computes, or with `sum` adds it to an input; and what it
// computes as it is, and a carry that is read before it changes.
std::unique_ptr<Graph> Loop(const std::function<Value(Value)>& of, bool reverse, bool sum) {
  auto graph = std::make_unique<Graph>();
  const Value carry = graph->AddParameter(TensorType(DType::kF32, {4, 8}), "carry");
  const Value xs = graph->AddParameter(TensorType(DType::kF32, {kLayers, 4, 8}), "xs");
  const Value outside = graph->AddParameter(TensorType(DType::kF32, {4, 8}), "outside");
  auto body = std::make_unique<Graph>(graph.get());
  const Value c = body->AddParameter(carry.type(), "c");
  const Value x = body->AddParameter(outside.type(), "x");
  const Value y = ops::Mul(ops::Add(c, x), body->Import(outside));
  const Value stacked = of(y);
  body->SetOutputs({ops::Add(c, 1.0), stacked, y});
  std::vector<Value> operands = {carry, xs};
  if (sum) {
    Dims dims = stacked.dims();
    dims.insert(dims.begin(), kLayers);
    operands.push_back(graph->AddParameter(TensorType(stacked.dtype(), dims), "sum"));
  }
  operands.push_back(outside);
  std::vector<std::unique_ptr<Graph>> regions;
  regions.push_back(std::move(body));
  Node* scan = graph->AddNode(ops::ScanOp(), std::move(operands),
                              {{"num_carry", int64_t{1}},
                               {"num_xs", int64_t{1}},
                               {"length", kLayers},
                               {"reverse", reverse},
                               {"policy", std::string("none")},
                               {"y_sinks", std::vector<int64_t>{sum ? 0 : -1, -1}}},
                              std::move(regions));
  graph->SetOutputs({scan->result(0), scan->result(1), scan->result(2)});
  graph->Verify();
  return graph;
}

// Each layer's once, and zeros once.
TEST(DelayReductionsTest, ReducesWhatTheIterationBeforeLeft) {
  const std::vector<std::pair<std::string_view, std::function<Value(Value)>>> bodies = {
      {"all_reduce", [](Value y) { return ops::AllReduce(y, kAll); }},
      {"all_reduce",
       [](Value y) {
         const Value sum =
             ops::Transpose(ops::AllReduce(ops::Convert(y, DType::kBF16), kAll), {1, 0});
         return ops::OptimizationBarrier({ops::Convert(sum, DType::kF32)})[0];
       }},
      {"reduce_scatter",
       [](Value y) {
         return ops::Transpose(ops::ReduceScatter(y, 1, kAll), {1, 0});
       }},
  };
  for (const auto& [kind, of] : bodies) {
    for (const bool reverse : {false, true}) {
      for (const bool sum : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", kind, reverse, sum));
        const std::unique_ptr<Graph> plain = Loop(of, reverse, sum);
        const std::unique_ptr<Graph> late = DelayReductions(*plain, {"data"});
        late->Verify();
        ExpectSame(*plain, *late);
        EXPECT_EQ(Count(*plain, kind, 1), 0);
        EXPECT_EQ(Count(*plain, kind, kLayers), 1);
        EXPECT_EQ(Count(*late, kind, 1), 1);
        EXPECT_EQ(Count(*late, kind, kLayers), 1);
      }
    }
  }
}

// Of two reductions the later waits with the first, and not the other way round.
TEST(DelayReductionsTest, DelaysTheAxesThatAreAsked) {
  const ops::CollectiveGroups pairs = {{{0, 1}, {2, 3}}, {"fsdp"}};
  const ops::CollectiveGroups across = {{{0, 2}, {1, 3}}, {"data"}};
  const auto of = [&](Value y) { return ops::AllReduce(ops::ReduceScatter(y, 1, pairs), across); };
  for (const auto& [axes, scatters, reduces] :
       std::vector<std::tuple<std::vector<std::string>, int, int>>{
           {{"data"}, 0, 1}, {{"fsdp"}, 1, 1}, {{"data", "fsdp"}, 1, 1}, {{"tensor"}, 0, 0}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(axes, ",")));
    const std::unique_ptr<Graph> plain = Loop(of, true, true);
    const std::unique_ptr<Graph> late = DelayReductions(*plain, axes);
    ExpectSame(*plain, *late);
    EXPECT_EQ(Count(*late, "reduce_scatter", 1), scatters);
    EXPECT_EQ(Count(*late, "all_reduce", 1), reduces);
    EXPECT_EQ(Count(*late, "reduce_scatter", kLayers), 1);
    EXPECT_EQ(Count(*late, "all_reduce", kLayers), 1);
  }
}

// The loop over layers within one over micro-batches.
TEST(DelayReductionsTest, FindsLoopsInLoops) {
  auto graph = std::make_unique<Graph>();
  const Value sums = graph->AddParameter(TensorType(DType::kF32, {kLayers, 8}), "sums");
  const Value outside = graph->AddParameter(TensorType(DType::kF32, {kLayers, 8}), "outside");
  const Value batches = graph->AddParameter(TensorType(DType::kF32, {3, 8}), "batches");
  const ops::ScanResult loop = ops::Scan(
      {sums}, {batches}, 3, [&](Graph&, const std::vector<Value>& c, const std::vector<Value>& b) {
        const ops::ScanResult layers = ops::Scan(
            {b[0]}, {outside}, kLayers,
            [&](Graph&, const std::vector<Value>& h, const std::vector<Value>& w) {
              const Value y = ops::Mul(h[0], w[0]);
              return ops::ScanBodyResult({ops::Add(h[0], w[0])}, {ops::AllReduce(y, kAll)});
            });
        return ops::ScanBodyResult({ops::Add(c[0], layers.stacked[0])});
      });
  graph->SetOutputs({loop.carry[0]}, {"sums"});
  graph->Donate(0, 0);
  const std::unique_ptr<Graph> late = DelayReductions(*graph, {"data"});
  late->Verify();
  ExpectSame(*graph, *late);
  EXPECT_EQ(Count(*graph, "all_reduce", 3), 0);
  EXPECT_EQ(Count(*late, "all_reduce", 3), 1);
  EXPECT_EQ(Count(*late, "all_reduce", 3 * kLayers), 1);
  EXPECT_EQ(late->output_names(), graph->output_names());
  EXPECT_EQ(late->parameter_infos()[0].donated_to_output, 0);
}

// A reduction that something else reads as well, and one of another kind, stay where they are.
TEST(DelayReductionsTest, LeavesWhatTheIterationNeeds) {
  for (const auto& of : std::vector<std::function<Value(Value)>>{
           [](Value y) {
             const Value sum = ops::AllReduce(y, kAll);
             return ops::Add(sum, sum);
           },
           [](Value y) { return ops::AllReduce(y, kAll, "max"); }}) {
    const std::unique_ptr<Graph> plain = Loop(of, false, false);
    const std::unique_ptr<Graph> late = DelayReductions(*plain, {"data"});
    ExpectSame(*plain, *late);
    EXPECT_EQ(TakeCensus(*late), TakeCensus(*plain));
  }
}

}  // namespace
}  // namespace mw::spmd
