// What estimates are made of, on graphs small enough to count by hand.
#include "meshwright/plan/estimate.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/graph/graph.h"
#include "meshwright/ops/add.h"
#include "meshwright/ops/all_gather.h"
#include "meshwright/ops/all_reduce.h"
#include "meshwright/ops/convert.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/exp.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reduce.h"
#include "meshwright/ops/reduce_scatter.h"
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
            const Target& target = FastTarget(), const compile::CompilerFlags& flags = {}) {
  compile::Program program;
  program.compiler_flags = flags;
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
  EXPECT_EQ(chain.working_bytes, 2 * kBytes + 4);  // and the sum
  EXPECT_EQ(chain.flops, 3.0 * 2 * kN * kN * kN);
  const Estimate kept = Of([](Graph&, Value x) {
    const Value a = ops::Einsum("ij,jk->ik", x, x);
    const Value b = ops::Einsum("ij,jk->ik", a, a);
    const Value c = ops::Einsum("ij,jk->ik", b, b);
    // exp(a) is made where it is used, and so a stays.
    return std::vector<Value>{ops::ReduceSum(ops::Add(c, ops::Exp(a)), {0, 1})};
  });
  EXPECT_EQ(kept.working_bytes, 3 * kBytes + 4);
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

Target TpuTarget() {
  Target target = FastTarget();
  target.plugin = "tpu";
  return target;
}

const ops::CollectiveGroups kPair = {{{0, 1}}, {"fsdp"}};

// On TPUs what stands between products is work of its own; without products it is one pass over
// memory.
TEST(EstimateTest, ElementwiseOpsCostTpusTimeBetweenProducts) {
  Target target = TpuTarget();
  target.elementwise_gops = 1;
  target.op_us = 2;
  const auto alone = [](Graph&, Value x) { return std::vector<Value>{ops::Exp(ops::Exp(x))}; };
  EXPECT_EQ(Of(alone, target).compute_ms, 0);
  const auto between = [](Graph&, Value x) {
    return std::vector<Value>{ops::Einsum("ij,jk->ik", ops::Exp(ops::Exp(x)), x)};
  };
  const double product_ms = 2e-9 * kN * kN * kN / target.product_efficiency;
  EXPECT_NEAR(Of(between, target).compute_ms, product_ms + 2e-3 + 2e-6 * kN * kN, 1e-9);
  target.elementwise_gops = target.op_us = 0;
  EXPECT_NEAR(Of(between, target).compute_ms, product_ms, 1e-9);
}

// Compilers keep a result's buffer for the whole program.
TEST(EstimateTest, OutputsOfTheirOwnAreThereFromTheStart) {
  const Estimate estimate = Of([](Graph&, Value x) {
    const Value a = ops::Einsum("ij,jk->ik", x, x);
    const Value b = ops::Einsum("ij,jk->ik", a, a);
    return std::vector<Value>{ops::ReduceSum(b, {0, 1}), ops::Exp(x)};
  });
  EXPECT_EQ(estimate.working_bytes, 4 + kBytes + 2 * kBytes);
}

// What two loops read as bf16 is cast once, and kept between them.
TEST(EstimateTest, CastsOfStackedWeightsStayFromLoopToLoop) {
  constexpr int64_t kLayers = 4;
  const auto two_loops = [](DType dtype) {
    return [dtype](Graph& g, Value x) {
      const Value w = g.AddParameter(TensorType(DType::kF32, {kLayers, kN, kN}), "w");
      const auto layer = [&](Graph&, std::vector<Value> carry, std::vector<Value> slices) {
        const Value narrow = ops::Convert(slices[0], dtype);
        const Value y = ops::Einsum("ij,jk->ik", ops::Convert(carry[0], dtype), narrow);
        return ops::ScanBodyResult{{ops::Convert(y, DType::kF32)}};
      };
      const ops::ScanResult once = ops::Scan({x}, {w}, kLayers, layer);
      const Value between = ops::Einsum("ij,jk->ik", once.carry[0], once.carry[0]);
      const ops::ScanResult twice = ops::Scan({between}, {w}, kLayers, layer);
      return std::vector<Value>{ops::ReduceSum(twice.carry[0], {0, 1})};
    };
  };
  const int64_t cast = Of(two_loops(DType::kBF16)).working_bytes;
  const int64_t wide = Of(two_loops(DType::kF32)).working_bytes;
  EXPECT_GE(cast, kLayers * kBytes / 2);
  EXPECT_LT(wide, kLayers * kBytes / 2);
  // TPUs round operands of products of float32 too, and keep them but where they are told not to.
  EXPECT_GE(Of(two_loops(DType::kF32), TpuTarget()).working_bytes, kLayers * kBytes / 2);
  const compile::CompilerFlags off = {{"xla_jf_bf16_propagation", "false"}};
  EXPECT_LT(Of(two_loops(DType::kF32), TpuTarget(), off).working_bytes, kLayers * kBytes / 2);
}

TEST(EstimateTest, TpusCopyTheGradientsThatAnUpdateScatters) {
  const auto scatter = [](Graph&, Value x) {
    return std::vector<Value>{ops::ReduceScatter(x, 0, kPair)};
  };
  EXPECT_EQ(Of(scatter).working_bytes, kBytes / 2);
  EXPECT_EQ(Of(scatter, TpuTarget()).working_bytes, kBytes / 2 + kBytes);
}

// Gathered along another dim than the first, the parts lie one behind the other until they are put
// in their places.
TEST(EstimateTest, TpusHoldThePartsOfGatheredWeightsUntilTheFirstLoop) {
  constexpr int64_t kLayers = 4;
  const auto gathered = [](int64_t dim) {
    return [dim](Graph& g, Value x) {
      Dims dims = {kLayers, kN, kN};
      dims[static_cast<size_t>(dim)] /= 2;
      const Value w = g.AddParameter(TensorType(DType::kF32, dims), "w");
      const ops::ScanResult scan = ops::Scan(
          {x}, {ops::AllGather(w, dim, kPair)}, kLayers,
          [](Graph&, std::vector<Value> carry, std::vector<Value> slices) {
            return ops::ScanBodyResult{{ops::Einsum("ij,jk->ik", carry[0], ops::Exp(slices[0]))}};
          });
      return std::vector<Value>{ops::ReduceSum(scan.carry[0], {0, 1})};
    };
  };
  const int64_t first = Of(gathered(0), TpuTarget()).working_bytes;
  EXPECT_EQ(Of(gathered(2), TpuTarget()).working_bytes, first + kLayers * kBytes);
  EXPECT_EQ(Of(gathered(2)).working_bytes, first);
}

// A weight travels while the layer before it computes; a sum is waited for.
TEST(EstimateTest, TransfersOfALoopHideBehindWorkThatDoesNotNeedThem) {
  const auto loop = [](bool sum) {
    return [sum](Graph& g, Value x) {
      const Value w = g.AddParameter(TensorType(DType::kF32, {5, kN / 2, kN}), "w");
      const ops::ScanResult scan = ops::Scan(
          {x}, {w}, 5, [sum](Graph&, std::vector<Value> carry, std::vector<Value> slices) {
            const Value y = ops::Einsum("ij,jk->ik", carry[0], carry[0]);
            const Value other =
                sum ? ops::AllReduce(y, kPair) : ops::AllGather(slices[0], 0, kPair);
            return ops::ScanBodyResult{{ops::Einsum("ij,jk->ik", y, other)}};
          });
      return std::vector<Value>{ops::ReduceSum(scan.carry[0], {0, 1})};
    };
  };
  Target target = FastTarget();
  target.link_gbps = 100;
  const Estimate gathers = Of(loop(false), target), sums = Of(loop(true), target);
  EXPECT_GT(gathers.transfer_ms, 0);
  EXPECT_NEAR(gathers.ms, gathers.compute_ms, 1e-9);
  EXPECT_NEAR(sums.ms, sums.compute_ms + sums.transfer_ms, 1e-9);
  EXPECT_GT(sums.ms, gathers.ms);
}

}  // namespace
}  // namespace mw::plan
