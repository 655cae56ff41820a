#include "meshwright/autodiff/join_scans.h"

#include <gtest/gtest.h>

#include <functional>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/graph_testing/case_inputs.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/log.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/optimization_barrier.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/scan.h"

namespace mw::autodiff {
namespace {

using graph::Graph;
using graph::Value;

// log sum exp(x w^T) of three chunks, which the backward pass computes again.
Value Chunks(Value x_CTD, Value w_VD) {
  return ops::Scan({}, {x_CTD}, 3,
                   [&](Graph&, const std::vector<Value>&, const std::vector<Value>& x) {
                     const Value logits = ops::Einsum("td,vd->tv", x[0], w_VD);
                     return ops::ScanBodyResult({},
                                                {ops::Log(ops::ReduceSum(ops::Exp(logits), {-1}))});
                   },
                   {.reverse = false, .policy = "full"})
      .stacked[0];
}

struct Loops {
  int scans = 0, products = 0;
};
Loops Count(const Graph& graph) {
  Loops loops;
  for (const auto& node : graph.nodes()) {
    if (node->op_name() != "scan") continue;
    ++loops.scans;
    for (const auto& inner : node->regions()[0]->nodes()) {
      loops.products += inner->op_name() == "dot_general" ? 1 : 0;
    }
  }
  return loops;
}

// The gradients of loss(chunks, mask) by x and w, with x's type accumulators where `accumulate`.
void BuildGradients(const std::function<Value(Value chunks, Value mask)>& loss, bool accumulate,
                    Graph* graph, std::vector<HostTensor>* inputs) {
  Graph forward;
  std::vector<Value> arguments, accumulators;
  const TensorType types[] = {TensorType(DType::kF32, {3, 4, 2}), TensorType(DType::kF32, {5, 2}),
                              TensorType(DType::kF32, {3, 4})};
  std::vector<Value> in;
  for (const TensorType& type : types) {
    in.push_back(forward.AddParameter(type, "x"));
    arguments.push_back(graph->AddParameter(type, "x"));
    inputs->push_back(RandomTensor(type, -1, 1, "join", static_cast<int>(inputs->size())));
  }
  const Value chunks = Chunks(in[0], in[1]);
  forward.SetOutputs({loss(chunks, in[2]), chunks});
  for (int i = 0; accumulate && i < 2; ++i) {
    accumulators.push_back(graph->AddParameter(types[i], "accumulator"));
    inputs->push_back(RandomTensor(types[i], -1, 1, "join", static_cast<int>(inputs->size())));
  }
  const GradientResult result =
      BuildGradient(*graph, forward, arguments, {0, 1}, 0, accumulators, Accumulate::kEachUse);
  std::vector<Value> outputs = result.outputs;
  outputs.insert(outputs.end(), result.gradients.begin(), result.gradients.end());
  graph->SetOutputs(outputs);
}

Value Sum(Value v) { return ops::ReduceSum(v, {0, 1}); }

TEST(JoinScansTest, LogitsAreComputedOnceWhereTheCotangentsDoNotNeedThem) {
  for (const bool accumulate : {false, true}) {
    Graph graph;
    std::vector<HostTensor> inputs;
    BuildGradients([](Value chunks, Value mask) { return Sum(ops::Mul(chunks, mask)); }, accumulate,
                   &graph, &inputs);
    EXPECT_EQ(Count(graph).scans, 2);
    EXPECT_EQ(Count(graph).products, 4);
    const std::unique_ptr<Graph> joined = JoinScans(graph);
    joined->Verify();
    EXPECT_EQ(Count(*joined).scans, 1);
    EXPECT_EQ(Count(*joined).products, 3);
    const auto expected = RunGraph(graph, inputs), actual = RunGraph(*joined, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(actual.ok()) << actual.status();
    ASSERT_EQ(actual->size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(Differences((*actual)[i], (*expected)[i]), "") << "result " << i;
    }
  }
}

TEST(JoinScansTest, LoopsThatNeedOneAnotherStayApart) {
  Graph graph;
  std::vector<HostTensor> inputs;
  BuildGradients([](Value chunks, Value) { return Sum(ops::Mul(chunks, chunks)); }, false, &graph,
                 &inputs);
  EXPECT_EQ(Count(*JoinScans(graph)).scans, 2);
}

TEST(JoinScansTest, LoopsWithoutACommonProductStayApart) {
  Graph graph;
  const Value x = graph.AddParameter(TensorType(DType::kF32, {3, 4, 2}), "x");
  const Value w = graph.AddParameter(TensorType(DType::kF32, {5, 2}), "w");
  const Value u = graph.AddParameter(TensorType(DType::kF32, {5, 2}), "u");
  graph.SetOutputs({Chunks(x, w), Chunks(x, u)});
  EXPECT_EQ(Count(*JoinScans(graph)).scans, 2);
  graph.SetOutputs({Chunks(x, w), Chunks(x, u), Chunks(x, w)});
  EXPECT_GT(Count(graph).scans, Count(*JoinScans(graph)).scans);
}

// exp(x w^T) squared, whose product is computed twice, the second time of what `again` makes of x.
Value Twice(Value x_CTD, Value w_VD, const std::function<Value(Value)>& again) {
  return ops::Scan({}, {x_CTD}, 3,
                   [&](Graph&, const std::vector<Value>&, const std::vector<Value>& x) {
                     const Value a = ops::Exp(ops::Einsum("td,vd->tv", x[0], w_VD));
                     const Value b = ops::Exp(ops::Einsum("td,vd->tv", again(x[0]), w_VD));
                     return ops::ScanBodyResult({}, {ops::Mul(a, b)});
                   })
      .stacked[0];
}

Value Barrier(Value x) { return ops::OptimizationBarrier({x})[0]; }

TEST(JoinScansTest, ProductsTwiceInOneBodyAreNotInCommon) {
  Graph graph;
  const Value x = graph.AddParameter(TensorType(DType::kF32, {3, 4, 2}), "x");
  const Value w = graph.AddParameter(TensorType(DType::kF32, {5, 2}), "w");
  const Value u = graph.AddParameter(TensorType(DType::kF32, {5, 2}), "u");
  const auto same = [](Value v) { return v; };
  graph.SetOutputs({Chunks(x, w), Twice(x, u, same)});
  EXPECT_EQ(Count(*JoinScans(graph)).scans, 2);
}

TEST(JoinScansTest, WhatBarriersKeepApartStaysApart) {
  for (const bool barrier_first : {false, true}) {
    Graph graph;
    const Value x = graph.AddParameter(TensorType(DType::kF32, {3, 4, 2}), "x");
    const Value w = graph.AddParameter(TensorType(DType::kF32, {5, 2}), "w");
    const Value chunks = barrier_first ? Twice(x, w, Barrier) : Chunks(x, w);
    graph.SetOutputs({chunks, Twice(x, w, Barrier)});
    const std::unique_ptr<Graph> joined = JoinScans(graph);
    EXPECT_EQ(Count(*joined).scans, 1);
    // One is in common; each product behind a barrier stays.
    EXPECT_EQ(Count(*joined).products, barrier_first ? 3 : 2);
  }
}

TEST(JoinScansTest, NamesAndDonationsStay) {
  for (const bool join : {false, true}) {
    Graph graph;
    const Value x = graph.AddParameter(TensorType(DType::kF32, {3, 4, 2}), "x");
    const Value w = graph.AddParameter(TensorType(DType::kF32, {5, 2}), "w");
    const Value u = graph.AddParameter(TensorType(DType::kF32, {5, 2}), "u");
    graph.SetOutputs({Chunks(x, w), Chunks(x, join ? w : u), ops::Exp(u)}, {"a", "b", "c"});
    graph.Donate(2, 2);
    const std::unique_ptr<Graph> joined = JoinScans(graph);
    EXPECT_EQ(Count(*joined).scans, join ? 1 : 2);
    EXPECT_EQ(joined->output_names(), graph.output_names());
    EXPECT_EQ(joined->parameter_infos()[2].name, "u");
    EXPECT_EQ(joined->parameter_infos()[2].donated_to_output, 2);
    EXPECT_EQ(joined->parameter_infos()[0].donated_to_output, -1);
  }
}

}  // namespace
}  // namespace mw::autodiff
