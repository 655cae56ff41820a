#include "meshwright/plan/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/io/file_util.h"
#include "meshwright/plan/report_html.h"
#include "meshwright/plan/saved_plan.h"
#include "meshwright/plan/search.h"
#include "meshwright/plan/step_plan_for_test.h"
#include "meshwright/plan/target.h"

namespace mw::plan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::map<std::string, PlannedKernel> ByName(const StepPlan& plan) {
  std::map<std::string, PlannedKernel> kernels;
  for (const PlannedKernel& kernel : plan.kernels) kernels[kernel.name] = kernel;
  return kernels;
}

TEST_F(StepPlanTest, AccountsForAllThatIsInMemory) {
  const auto plan = Plan("cpu:1", {"gradient_accumulation_steps=3"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int64_t weights = WeightBytes(false);
  auto kernels = ByName(*plan);
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels["first_kernel"].count, 1);
  EXPECT_EQ(kernels["accum_kernel"].count, 2);
  EXPECT_EQ(kernels["update_kernel"].count, 1);
  for (const auto& [name, kernel] : kernels) {
    EXPECT_EQ(kernel.memory.weights, weights) << name;
    EXPECT_EQ(kernel.memory.optimizer_state, 2 * weights + 4) << name;  // and its count
    EXPECT_EQ(kernel.memory.gathered_weights, 0) << name;
  }
  // The first makes the accumulators, and so holds them among what it works with.
  EXPECT_EQ(kernels["first_kernel"].memory.accumulators, 0);
  EXPECT_GE(kernels["first_kernel"].memory.working, weights);
  EXPECT_EQ(kernels["first_kernel"].memory.beside, 2 * weights + 4);
  EXPECT_EQ(kernels["accum_kernel"].memory.accumulators, weights);
  EXPECT_EQ(kernels["accum_kernel"].memory.beside, 2 * weights + 4);
  EXPECT_EQ(kernels["accum_kernel"].memory.batch, 5 * 4 * 32 * 4);
  EXPECT_EQ(kernels["update_kernel"].memory.accumulators, weights);
  EXPECT_EQ(kernels["update_kernel"].memory.beside, 0);
  for (const auto& [name, kernel] : kernels) {
    EXPECT_GE(kernel.memory.Total(), kernel.compiled.memory.LiveBytes() + kernel.memory.beside)
        << name;
  }
  EXPECT_EQ(plan->device_peak_bytes(), plan->peak_kernel()->memory.Total());
  EXPECT_EQ(plan->tokens_per_step, 3 * 4 * 32);
  EXPECT_EQ(plan->modelled_ms(), std::nullopt);  // the CPU's compiler has no schedule
  EXPECT_EQ(plan->fits(), std::nullopt);
}

TEST_F(StepPlanTest, FrozenWeightsLieBesideTheUpdate) {
  const auto plan = Plan("cpu:1", {"trainable_parameters=*mlp*"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  auto kernels = ByName(*plan);
  const int64_t frozen = WeightBytes(false) - WeightBytes(true);
  ASSERT_GT(frozen, 0);
  EXPECT_EQ(kernels["update_kernel"].memory.beside, frozen);
  EXPECT_EQ(kernels["update_kernel"].memory.weights, WeightBytes(false));
  EXPECT_EQ(kernels["first_kernel"].memory.optimizer_state, 2 * WeightBytes(true) + 4);
}

TEST_F(StepPlanTest, TellsGatheredWeightsFromTheirShards) {
  const auto plan = Plan("cpu:4", {"mesh=fsdp=4", "gather_parameters=update", "dtype=bf16",
                                   "sharding_fallback=replicate", "gradient_accumulation_steps=2"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  auto kernels = ByName(*plan);
  EXPECT_EQ(kernels["accum_kernel"].memory.weights, kernels["update_kernel"].memory.weights);
  EXPECT_LT(kernels["accum_kernel"].memory.weights, WeightBytes(false));
  EXPECT_GT(kernels["accum_kernel"].memory.gathered_weights, 0);
  EXPECT_EQ(kernels["update_kernel"].memory.gathered_weights, 0);  // let go by then
}

TEST_F(StepPlanTest, TheCensusIsWhatTheCompilerMade) {
  const auto plan = Plan("cpu:4", {"mesh=fsdp=2,data=2", "sharding_fallback=replicate"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(*plan->sent_bytes(), 0);
  for (const PlannedKernel& kernel : plan->kernels) {
    // The CPU's compiler makes one of several all-reduces; no byte more or less.
    int64_t ours = 0, compiled = 0;
    for (const spmd::CensusRow& row : *kernel.census) {
      if (row.kind == "all_gather") ours += row.count * row.trips;
    }
    ASSERT_TRUE(kernel.compiled.collectives.has_value());
    for (const hlo::Collective& c : *kernel.compiled.collectives) {
      if (c.kind == "all-gather") compiled += c.trips;
    }
    EXPECT_EQ(ours, compiled) << kernel.name;
  }
  const auto automatic = Plan("cpu:4", {"mesh=data=4", "shard_mode=auto"});
  ASSERT_TRUE(automatic.ok()) << automatic.status();
  EXPECT_EQ(automatic->sent_bytes(), std::nullopt);
}

TEST_F(StepPlanTest, EntryPoints) {
  PlanOptions options;
  options.entry = EntryPoint::kBatched;
  const auto batched = Plan("cpu:1", {"gradient_accumulation_steps=3"}, options);
  ASSERT_TRUE(batched.ok()) << batched.status();
  EXPECT_EQ(batched->kernels[0].name, "batched_kernel");
  EXPECT_EQ(batched->kernels.size(), 2u);
  EXPECT_EQ(ByName(*batched)["batched_kernel"].memory.batch, 3 * 5 * 4 * 32 * 4);
  options.entry = EntryPoint::kTrainStep;
  EXPECT_THAT(Plan("cpu:1", {"gradient_accumulation_steps=3"}, options).status().ToString(),
              HasSubstr("train_step is a step of one micro-batch"));
  const auto fused = Plan("cpu:1", {}, options);
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(fused->kernels.size(), 1u);
  EXPECT_EQ(fused->kernels[0].memory.optimizer_state, 2 * WeightBytes(false) + 4);
}

// What `--json` prints is what `--compare` takes.
TEST_F(StepPlanTest, ASavedPlanIsRead) {
  const auto read = [](const StepPlan& plan) {
    return ParsePlan(ToJson(plan).dump(), "it").status();
  };
  for (const char* mode : {"shard_mode=explicit", "shard_mode=auto"}) {
    auto plan = Plan("cpu:2", {"mesh=data=2", mode});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(read(*plan).ok()) << read(*plan);
    plan->kernels[0].compiled.does_not_fit = DoesNotFit{7, 5, "Used 7 of 5"};
    EXPECT_TRUE(read(*plan).ok()) << read(*plan);
  }
}

TEST_F(StepPlanTest, SaysWhetherItFits) {
  const auto plan = Plan("cpu:1", {}, {}, 1e-4);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->fits(), false);
  EXPECT_THAT(ToText(*plan), HasSubstr("DOES NOT FIT cpu (0.10 MiB)"));
  EXPECT_EQ(ToJson(*plan).at("fits"), false);
  const auto large = Plan("cpu:1", {}, {}, 1);
  EXPECT_EQ(large->fits(), true);
  EXPECT_EQ(ToJson(*large).at("hbm_gib"), 1.0);
}

TEST_F(StepPlanTest, SearchRanksWhatIsCompiled) {
  ASSERT_TRUE(Plan("cpu:2", {"mesh=data=2", "gradient_accumulation_steps=3"}).ok());
  const Target target = *FindTarget("cpu:2", compiler_);
  train::TrainConfig config = config_;
  config.mesh.mesh.clear();
  SearchOptions options;
  options.num_compiled = 2;
  const auto result = Search(*model_.model, config, target, compiler_, options);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->ranked.size(), 2u);
  EXPECT_LE(result->ranked[0].plan->device_peak_bytes(),
            result->ranked[1].plan->device_peak_bytes());
  // The best one is compiled whole; of the others the first micro-batch is taken to be as the rest.
  EXPECT_THAT(result->ranked[0].plan->kernels, ::testing::SizeIs(3));
  ASSERT_THAT(result->ranked[1].plan->kernels, ::testing::SizeIs(2));
  EXPECT_EQ(result->ranked[1].plan->kernels[0].name, "accum_kernel");
  EXPECT_EQ(result->ranked[1].plan->kernels[0].count, 3);
  // What is so anyway is not said.
  for (const Candidate& c : result->ranked) {
    EXPECT_THAT(ToString(c.change), HasSubstr("mesh="));
    EXPECT_THAT(ToString(c.change), ::testing::Not(HasSubstr("custom_mesh_and_rule=default")));
  }
  EXPECT_FALSE(result->others.empty());
  EXPECT_GT(result->num_illegal, 0);  // the vocabulary of 131 is not cut
  EXPECT_LT(*result->median_memory_error, 0.5);
  EXPECT_EQ(result->median_time_error, std::nullopt);  // a CPU has no schedule
  // Of devices with known rates but no schedule the fastest by estimate comes first.
  Target with_rates = target;
  with_rates.peak_tflops = with_rates.hbm_gbps = with_rates.link_gbps = 1;
  options.num_compiled = 3;
  const auto by_estimate = Search(*model_.model, config, with_rates, compiler_, options);
  ASSERT_TRUE(by_estimate.ok()) << by_estimate.status();
  ASSERT_EQ(by_estimate->ranked.size(), 3u);
  EXPECT_LE(by_estimate->ranked[0].estimate.ms, by_estimate->ranked[1].estimate.ms);
  EXPECT_LT(by_estimate->ranked[0].estimate.ms, by_estimate->ranked[2].estimate.ms);
  EXPECT_GT(by_estimate->ranked[0].plan->device_peak_bytes(),
            by_estimate->ranked[2].plan->device_peak_bytes());
  options.num_compiled = 2;
  // Where none should fit the smallest are compiled all the same.
  Target small = target;
  small.hbm_bytes = 1000;
  const auto none = Search(*model_.model, config, small, compiler_, options);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->ranked.size(), 2u);
  EXPECT_THAT(ToText(*none), HasSubstr("DOES NOT FIT"));
}

TEST_F(StepPlanTest, APageHoldsEveryProgramAndNothingFromElsewhere) {
  const auto plan = Plan("cpu:1", {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string page = ToHtml("a <title>", {{"one", *plan}, {"two", *plan}});
  EXPECT_THAT(page, HasSubstr("a &lt;title&gt;"));
  EXPECT_THAT(page, HasSubstr("Comparison"));
  EXPECT_THAT(page, HasSubstr("first_kernel"));
  EXPECT_THAT(page, HasSubstr("optimizer state"));
  for (const char* outside : {"http:", "https:", "src=", "href=", "url("}) {
    EXPECT_THAT(page, ::testing::Not(HasSubstr(outside)));
  }
}

// A second plan compiles nothing.
TEST_F(StepPlanTest, RemembersWhatWasCompiled) {
  const auto first = Plan("cpu:1", {});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto again = Plan("cpu:1", {});
  EXPECT_EQ(ToJson(*again), ToJson(*first));  // compile_s too
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().extension(), ".json") << "left behind: " << entry.path();
  }
  EXPECT_TRUE(notes_.empty());
}

// Another digit in an entry would be another figure; each is compiled again, which is told once,
// and kept.
TEST_F(StepPlanTest, DamagedEntriesAreCompiledAgain) {
  const auto first = Plan("cpu:1", {});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto damage = [&](const auto& how) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string path = entry.path().string();
      std::string text = *io::ReadFile(path);
      how(&text);
      ASSERT_TRUE(io::WriteFile(path, text).ok());
    }
  };
  const auto expect_told = [&](const char* why) {
    const auto anew = Plan("cpu:1", {});
    ASSERT_TRUE(anew.ok()) << anew.status();
    EXPECT_EQ(anew->device_peak_bytes(), first->device_peak_bytes());
    EXPECT_EQ(anew->flops_per_step, first->flops_per_step);
    EXPECT_THAT(notes_, ::testing::SizeIs(2));  // of both programs
    EXPECT_THAT(notes_, ::testing::Each(HasSubstr(why)));
    EXPECT_THAT(notes_, Contains(HasSubstr("compiling update_kernel again: what is kept of it ")));
    notes_.clear();
    EXPECT_EQ(ToJson(*Plan("cpu:1", {})), ToJson(*anew));
    EXPECT_TRUE(notes_.empty());
  };
  damage([](std::string* text) {
    const size_t digit = text->find("\"temp_bytes\":") + 13;
    (*text)[digit] = (*text)[digit] == '9' ? '8' : '9';
  });
  expect_told("has a wrong checksum");
  damage([](std::string* text) { text->resize(text->size() / 2); });
  expect_told("has a wrong checksum");
  damage([](std::string* text) { text->clear(); });
  expect_told("has no checksum");
  // As earlier versions wrote it.
  damage([](std::string* text) {
    auto json = nlohmann::ordered_json::parse(*text);
    json.erase("xxh3_128");
    *text = json.dump();
  });
  expect_told("has no checksum");
}

// A plan that cannot be kept is one all the same.
TEST_F(StepPlanTest, AnEntryThatCannotBeWrittenIsTold) {
  ASSERT_TRUE(Plan("cpu:1", {}).ok());
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    std::filesystem::remove(entry.path());
    std::filesystem::create_directory(entry.path());
  }
  ASSERT_TRUE(Plan("cpu:1", {}).ok());
  EXPECT_THAT(notes_, Contains(HasSubstr("update_kernel will be compiled again next time: ")));
}

TEST_F(StepPlanTest, RefusesInASentence) {
  EXPECT_THAT(Plan("tpu8x:2x2x1", {}).status().ToString(),
              HasSubstr("no devices 'tpu8x' are known; the nearest is \"tpu7x\""));
  EXPECT_THAT(Plan("cpu", {}).status().ToString(), HasSubstr("has no size"));
  EXPECT_THAT(Plan("cpu:x", {}).status().ToString(), HasSubstr("cpu:x"));
  EXPECT_THAT(Plan("cpu:4", {"mesh=data=2"}).status().ToString(), HasSubstr("2 devices"));
  EXPECT_THAT(Plan("cpu:4", {}).status().ToString(), HasSubstr("4 devices and no mesh"));
  EXPECT_THAT(Plan("cpu:4", {"mesh=data=4", "batch_size=6"}).status().ToString(), HasSubstr("6"));
  EXPECT_THAT(Plan("cpu:1", {"compile_xla_flags=xla_no_such_flag=1"}).status().ToString(),
              HasSubstr("xla_no_such_flag"));
}

TEST(KernelPlanTest, IsWrittenAndReadWhole) {
  KernelPlan plan;
  plan.memory.argument_bytes = 5;
  plan.memory.peak_bytes = 9;
  plan.flops = 2.5;
  plan.fingerprint = "f";
  plan.compile_s = 1.5;
  plan.live_tensors = {{"a", "f32[2]", "mlp/mul", 8, 3}};
  plan.collectives = {{"g", "all-gather", {{0, 1}}, {"f32"}, 16, 4}};
  plan.schedule.emplace();
  plan.schedule->modelled_ms = 3;
  plan.schedule->custom_calls = {{"kernel", 0.5}};
  plan.schedule->unknown = {"u"};
  plan.schedule->transfers = {{"t", "all-gather", "w", 2, 1.5, 0.5}};
  plan.schedule->computations = {{"main", 1, 3.0, {{"op", "while", "l", 0.5, 1.5, 1}}}};
  const auto json = ToJson(plan);
  const auto read = KernelPlanFromJson(json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), json);
  EXPECT_EQ(read->PeakBytes(), 9);
  EXPECT_EQ(read->schedule->computations[0].ops[0].inner, 1);
  KernelPlan too_large;
  too_large.does_not_fit = DoesNotFit{7, 5, "Used 7 of 5"};
  EXPECT_EQ(ToJson(*KernelPlanFromJson(ToJson(too_large))), ToJson(too_large));
  EXPECT_THAT(KernelPlanFromJson({{"compile_s", 1}}).status().ToString(),
              HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace mw::plan
