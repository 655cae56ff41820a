// What estimates are made of, on graphs small enough to count by hand.
#include "meshwright/plan/estimate.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/graph/graph.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/scan.h"

namespace mw::plan {
namespace {

using graph::Graph;
using graph::Value;

constexpr int64_t kN = 64;
constexpr int64_t kBytes = 4 * kN * kN;

Target FastTarget() {
  Target target;
  target.peak_tflops = 1;   // 1e9 flops a millisecond
  target.hbm_gbps = 1e9;    // memory costs nothing
  target.link_gbps = 1e-6;  // a byte a microsecond
  return target;
}

Estimate Of(const std::function<std::vector<Value>(Graph&, Value x)>& build,
            const Target& target = FastTarget()) {
  compile::Program program;
  auto graph = std::make_shared<Graph>();
  const Value x = graph->AddParameter(TensorType(DType::kF32, {kN, kN}), "x");
  graph->SetOutputs(build(*graph, x));
  graph->Verify();
  program.graph = graph;
  return EstimateProgram(program, target);
}

TEST(EstimateTest, ElementwiseOpsAreNoBuffers) {
  const Estimate sum = Of([](Graph&, Value x) {
    return std::vector<Value>{ops::ReduceSum(ops::Exp(ops::Mul(x, x)), {0, 1})};
  });
  EXPECT_EQ(sum.working_bytes, 4);  // the sum
  EXPECT_EQ(sum.flops, 0);
}

TEST(EstimateTest, ProductsAreBuffersUntilTheirLastUse) {
  const Estimate chain = Of([](Graph&, Value x) {
    const Value a = ops::Einsum("ij,jk->ik", x, x);
    const Value b = ops::Einsum("ij,jk->ik", a, a);
    const Value c = ops::Einsum("ij,jk->ik", b, b);  // a is gone by now
    return std::vector<Value>{ops::ReduceSum(c, {0, 1})};
  });
  EXPECT_EQ(chain.working_bytes, 2 * kBytes);
  EXPECT_EQ(chain.flops, 3.0 * 2 * kN * kN * kN);
  const Estimate kept = Of([](Graph&, Value x) {
    const Value a = ops::Einsum("ij,jk->ik", x, x);
    const Value b = ops::Einsum("ij,jk->ik", a, a);
    const Value c = ops::Einsum("ij,jk->ik", b, b);
    // exp(a) is made where it is used, and so a stays.
    return std::vector<Value>{ops::ReduceSum(ops::Add(c, ops::Exp(a)), {0, 1})};
  });
  EXPECT_EQ(kept.working_bytes, 3 * kBytes);
}

TEST(EstimateTest, ProductsReachAPartOfThePeak) {
  const auto product = [](Graph&, Value x) {
    return std::vector<Value>{ops::ReduceSum(ops::Einsum("ij,jk->ik", x, x), {0, 1})};
  };
  Target target = FastTarget();
  target.product_efficiency = 0.25;
  EXPECT_NEAR(Of(product, target).compute_ms, 4 * 2e-9 * kN * kN * kN, 1e-8);
  EXPECT_LT(Of(product).compute_ms, Of(product, target).compute_ms / 2);
}

TEST(EstimateTest, AProductThatIsOnlyCastIsStoredCast) {
  const Estimate cast = Of([](Graph&, Value x) {
    const Value a = ops::Convert(ops::Einsum("ij,jk->ik", x, x), DType::kBF16);
    return std::vector<Value>{
        ops::ReduceSum(ops::Convert(ops::Einsum("ij,jk->ik", a, a), DType::kF32), {0, 1})};
  });
  EXPECT_LT(cast.working_bytes, kBytes + 16);
}

TEST(EstimateTest, LoopsCountTheirTripsAndStackWhatTheyKeep) {
  const auto loop = [](Graph& g, Value x) {
    const ops::ScanResult scan =
        ops::Scan({x}, {}, 5, [](Graph&, std::vector<Value> carry, std::vector<Value>) {
          const Value y = ops::Einsum("ij,jk->ik", carry[0], carry[0]);
          return ops::ScanBodyResult{{y}, {y}};
        });
    static_cast<void>(g);
    return std::vector<Value>{ops::ReduceSum(scan.stacked[0], {0, 1, 2})};
  };
  const Estimate estimate = Of(loop);
  EXPECT_EQ(estimate.flops, 5.0 * 2 * kN * kN * kN);
  EXPECT_GE(estimate.working_bytes, 5 * kBytes);
  EXPECT_LE(estimate.working_bytes, 6 * kBytes + 4);
}

}  // namespace
}  // namespace mw::plan
