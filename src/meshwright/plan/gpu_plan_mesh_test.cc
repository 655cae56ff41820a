// Plans for GPUs, none of which has to be there; the plugin has to: `./dev setup gpu`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/graph_testing/census_tally.h"
#include "meshwright/plan/compiler_for_test.h"
#include "meshwright/plan/step_plan.h"
#include "meshwright/plan/target.h"
#include "meshwright/train/mesh_layouts_for_test.h"

namespace mw::plan {
namespace {

using ::testing::HasSubstr;

class GpuPlanTest : public CompilerTest {
 protected:
  void SetUp() override {
    const auto target = FindTarget("h200:8", compiler_);
    if (target.status().code() == absl::StatusCode::kNotFound) {
      GTEST_SKIP() << "./dev setup gpu was not run: " << target.status().message();
    }
    model_ = train::TinyModel("tiny-qwen3", [](models::ModelConfig& c) { c.vocab_size = 128; });
  }

  absl::StatusOr<StepPlan> Plan(const std::string& topology, std::vector<std::string> settings,
                                const PlanOptions& options = {}) {
    for (const char* setting : {"batch_size=8", "max_target_length=32"}) {
      settings.insert(settings.begin(), setting);
    }
    auto config = train::LoadConfig("", settings);
    if (!config.ok()) return config.status();
    auto target = FindTarget(topology, compiler_);
    if (!target.ok()) return target.status();
    auto mesh = config->mesh.Resolve(target->num_devices);
    if (!mesh.ok()) return mesh.status();
    config->engine.mesh = *std::move(mesh);
    mesh_ = config->engine.mesh.partition.mesh;
    return PlanStep(*model_, *config, *target, compiler_, options);
  }

  // By kind and groups, of all trips: the compiler takes a trip out of some loops.
  static CensusTally OfAllTrips(const CensusTally& tally) {
    CensusTally all;
    for (const auto& [key, amount] : tally) {
      const auto& [kind, groups, trips] = key;
      CensusAmount& sum = all[{kind, groups, 1}];
      sum.count += trips * amount.count;
      sum.bytes += trips * amount.bytes;
    }
    return all;
  }

  // The compiled program holds what the census says, and no other collective.
  void ExpectCensus(std::vector<std::string> settings) {
    // A whole step in one program, every collective as it is written, none made one with others.
    PlanOptions options;
    options.entry = EntryPoint::kTrainStep;
    std::string flags = "compile_xla_flags=";
    for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter"}) {
      flags += fmt::format("xla_gpu_{}_combine_threshold_bytes=0 ", kind);
    }
    settings.push_back(std::move(flags));
    const auto plan = Plan("h200:8", settings, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const PlannedKernel& kernel : plan->kernels) {
      ASSERT_TRUE(kernel.compiled.collectives.has_value()) << kernel.name;
      EXPECT_EQ(ToString(OfAllTrips(TallyOf(*kernel.compiled.collectives))),
                ToString(OfAllTrips(TallyOf(*kernel.census, mesh_))))
          << kernel.name;
    }
  }

  std::unique_ptr<models::Model> model_;
  Mesh mesh_;
};

TEST_F(GpuPlanTest, TheCensusIsWhatTheCompilerMade) {
  ExpectCensus({"mesh=data=8", "shard_optimizer_over_data=true"});
  ExpectCensus({"mesh=data=2,fsdp=4"});
  ExpectCensus({"mesh=data=4,tensor=2"});
}

TEST_F(GpuPlanTest, AccountsForMemoryAndNamesTheLargestTensors) {
  const auto plan = Plan("h200:8", {"mesh=fsdp=8", "attention=auto", "dtype=bf16"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->target.device_kind, "NVIDIA H200");
  EXPECT_EQ(plan->fits(), true);
  EXPECT_EQ(plan->modelled_ms(), std::nullopt);
  for (const PlannedKernel& kernel : plan->kernels) {
    const KernelPlan& compiled = kernel.compiled;
    EXPECT_GE(compiled.PeakBytes(), compiled.memory.argument_bytes) << kernel.name;
    EXPECT_LE(compiled.PeakBytes(), compiled.memory.LiveBytes()) << kernel.name;
    EXPECT_FALSE(compiled.fingerprint.empty()) << kernel.name;
    EXPECT_FALSE(compiled.live_tensors.empty()) << kernel.name;
    EXPECT_GT(kernel.estimate->ms, 0) << kernel.name;
  }
  const std::string text = ToText(*plan);
  EXPECT_THAT(text, HasSubstr("fits NVIDIA H200 (139.80 GiB)"));
  EXPECT_THAT(text, HasSubstr("largest tensors at the peak of first_kernel"));
  EXPECT_THAT(text, HasSubstr("by estimate a step takes"));
  EXPECT_THAT(ToJson(*plan).at("kernels").at("update_kernel").at("live_tensors").dump(),
              HasSubstr("\"embed_tokens.weight\""));
}

TEST_F(GpuPlanTest, OtherKindsAndSeveralMachines) {
  for (const char* topology : {"h100:2", "b200:2", "h200:16"}) {
    const auto target = FindTarget(topology, compiler_);
    ASSERT_TRUE(target.ok()) << target.status();
    KernelRequest request;
    request.target = *target;
    request.name = "sum";
    request.num_partitions = target->num_devices;
    std::vector<int64_t> devices(static_cast<size_t>(target->num_devices));
    std::iota(devices.begin(), devices.end(), 0);
    request.stablehlo = fmt::format(
        R"(module @sum {{ func.func public @main(%a: tensor<1024xf32>) -> tensor<1024xf32> {{
    %e = stablehlo.exponential %a : tensor<1024xf32>
    %0 = "stablehlo.all_reduce"(%e) <{{replica_groups = dense<[[{}]]> : tensor<1x{}xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}}> ({{
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) : (tensor<1024xf32>) -> tensor<1024xf32>
    return %0 : tensor<1024xf32> }} }})",
        fmt::join(devices, ","), devices.size());
    const auto plan = compiler_.Compile(request);
    ASSERT_TRUE(plan.ok()) << topology << ": " << plan.status();
    EXPECT_EQ(plan->memory.argument_bytes, 4096);
    ASSERT_EQ(plan->collectives->size(), 1u) << topology;
    EXPECT_EQ(plan->collectives->front().groups.front(), devices);
  }
}

}  // namespace
}  // namespace mw::plan
