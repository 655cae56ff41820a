// The census of a program is what the compiler's own text of it holds: nothing more,
// nothing less, in the same loops, over the same groups.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>

#include "meshwright/base/status_macros.h"
#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/runtime/partitioned_options.h"
#include "meshwright/train/mesh_layouts_for_test.h"

namespace mw::train {
namespace {

// The text of the compiled program.
absl::StatusOr<std::string> Compile(const compile::Program& program,
                                    const std::string& disabled_passes) {
  const DumpFolder folder;
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<runtime::Client> client, TestMeshClient());
  runtime::CompileOptions options = runtime::PartitionedOptions(program.mesh, *client);
  options.env_option_overrides = {{"xla_dump_to", folder.path()},
                                  {"xla_dump_hlo_as_text", true},
                                  // Of the code, which nothing runs.
                                  {"xla_backend_optimization_level", int64_t{0}},
                                  {"xla_llvm_disable_expensive_passes", true},
                                  {"xla_disable_hlo_passes", disabled_passes}};
  const auto compiled = client->Compile(program.stablehlo, options);
  MW_RETURN_IF_ERROR(compiled.status());
  std::string text = folder.OptimizedHlo();
  if (text.empty()) return absl::InternalError("the compiler has left no text");
  return text;
}

// The same; a program is compiled once: layouts share some.
absl::StatusOr<std::string> CompiledHlo(const compile::Program& program,
                                        const std::string& disabled_passes) {
  static std::mutex mutex;
  static auto* const texts = new std::map<std::string, std::string>();
  const std::string key = program.stablehlo + disabled_passes;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto it = texts->find(key); it != texts->end()) return it->second;
  }
  MW_ASSIGN_OR_RETURN(std::string text, Compile(program, disabled_passes));
  const std::lock_guard<std::mutex> lock(mutex);
  return texts->emplace(key, std::move(text)).first->second;
}

// Without the passes that merge all-reduces and widen those of bfloat16.
constexpr const char* kKeepCollectives = "cpu-all-reduce-combiner,all-reduce-promotion";

std::unique_ptr<models::Model> TinyLlama() {
  return TinyModel("tiny-llama", [](models::ModelConfig& c) { c.vocab_size = 132; });
}

class CensusMeshTest : public ::testing::TestWithParam<Layout> {};

TEST_P(CensusMeshTest, IsWhatTheCompiledProgramHolds) {
  const std::unique_ptr<models::Model> model = TinyLlama();
  const EngineOptions options = LayoutOptions(GetParam());
  std::vector<compile::Program> programs;
  std::vector<std::future<absl::StatusOr<std::string>>> texts;
  for (const char* kernel : {"first", "accum", "update"}) {
    auto program = BuildKernel(kernel, *model, options);
    ASSERT_TRUE(program.ok()) << program.status();
    programs.push_back(*std::move(program));
  }
  for (const compile::Program& program : programs) {
    texts.push_back(std::async(std::launch::async, CompiledHlo, std::cref(program),
                               std::string(kKeepCollectives)));
  }
  size_t num_collectives = 0;
  for (size_t i = 0; i < programs.size(); ++i) {
    const auto collectives = CollectivesOf(texts[i].get());
    EXPECT_EQ(ToString(TallyOf(collectives)),
              ToString(TallyOf(programs[i].census, programs[i].mesh)))
        << programs[i].name;
    num_collectives += collectives.size();
  }
  EXPECT_GT(num_collectives, 0U);
}

INSTANTIATE_TEST_SUITE_P(Layouts, CensusMeshTest,
                         ::testing::Values(Layout{.mesh = "data=4"}, Layout{.mesh = "fsdp=4"},
                                           Layout{.mesh = "fsdp=2", .scan_layers = false},
                                           Layout{.mesh = "data=2,fsdp=2"},
                                           Layout{.mesh = "data=2,tensor=2",
                                                  .rules = "tp-sequence"},
                                           Layout{.mesh = "data=4", .zero1 = true}),
                         [](const auto& info) { return LayoutName(info.param); });

// The one thing that XLA merges, were it not told to leave it: all-reduces of the same
// groups become one of several operands. No byte more or less moves.
TEST(XlaChangesTest, AllReducesAreMerged) {
  const std::unique_ptr<models::Model> model = TinyLlama();
  const auto program = BuildKernel("update", *model, LayoutOptions({.mesh = "data=4"}));
  ASSERT_TRUE(program.ok()) << program.status();
  const CensusTally ours = TallyOf(program->census, program->mesh);
  const CensusTally xla = TallyOf(CollectivesOf(CompiledHlo(*program, "")));
  ASSERT_EQ(xla.size(), 1U) << ToString(xla);
  ASSERT_EQ(ours.size(), 1U) << ToString(ours);
  EXPECT_EQ(xla.begin()->first, ours.begin()->first);
  EXPECT_LT(xla.begin()->second.count, ours.begin()->second.count);
  EXPECT_EQ(xla.begin()->second.bytes, ours.begin()->second.bytes);
}

// Weights gathered once an update, in bfloat16. The CPU plugin carries them as float32.
TEST(XlaChangesTest, TheCpuGathersBfloat16AsFloat32) {
  const std::unique_ptr<models::Model> model = TinyLlama();
  const auto program = BuildKernel("first", *model,
                                   LayoutOptions({.mesh = "fsdp=4",
                                                  .gather = "update",
                                                  .reduce = "fsdp=update",
                                                  .compute = DType::kBF16}));
  ASSERT_TRUE(program.ok()) << program.status();
  // Nothing in the loop: gradients stay where they are until the update.
  ASSERT_EQ(program->census.size(), 1U) << spmd::CensusText(program->census);
  CensusTally ours = TallyOf(program->census, program->mesh);
  ours.begin()->second.bytes *= 2;
  EXPECT_EQ(ToString(TallyOf(CollectivesOf(CompiledHlo(*program, kKeepCollectives)))),
            ToString(ours));
}

}  // namespace
}  // namespace mw::train
