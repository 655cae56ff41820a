// The census of a program is what the compiler's own text of it holds: nothing more,
// nothing less, in the same loops, over the same groups.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
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

using ::testing::HasSubstr;

using Groups = std::vector<std::vector<int64_t>>;

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

TEST(HloCollectivesTest, FindsThemInLoopsAndCalls) {
  const auto found = ParseHloCollectives(R"(HloModule m, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%called (x: f32[4]) -> f32[8] {
  %x = f32[4]{0} parameter(0)
  ROOT %g = f32[8]{0} all-gather(%x), channel_id=1, replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}
}

%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %y = f32[4]{0} get-tuple-element(%p), index=1
  %c = f32[8]{0} call(%y), to_apply=%called
  %r = f32[4]{0} reduce-scatter(%c), channel_id=2, replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=%add
  ROOT %t = (s32[], /*index=1*/f32[4]{0}) tuple(%i, %r)
}

%condition (q: (s32[], f32[4])) -> pred[] {
  %q = (s32[], f32[4]{0}) parameter(0)
  ROOT %n = pred[] constant(false)
}

ENTRY %main (z: (s32[], f32[4])) -> (s32[], f32[4]) {
  %z = (s32[], f32[4]{0}) parameter(0)
  %e = bf16[2]{0} constant({1, 2})
  %k = (bf16[2]{0}, bf16[2]{0}) all-reduce-start(%e, %e), replica_groups=[1,4]<=[4], to_apply=%add
  ROOT %w = (s32[], f32[4]{0}) while(%z), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"6"}}
}
)");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 3U);
  EXPECT_EQ((*found)[0].kind, "all-reduce");
  EXPECT_EQ((*found)[0].groups, (Groups{{0, 1, 2, 3}}));
  EXPECT_EQ((*found)[0].result_bytes, 8);
  EXPECT_EQ((*found)[1].kind, "all-gather");
  EXPECT_EQ((*found)[1].groups, (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ((*found)[1].trips, 6);
  EXPECT_EQ((*found)[2].kind, "reduce-scatter");
  EXPECT_EQ((*found)[2].groups, (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ((*found)[2].result_bytes, 16);
  EXPECT_EQ((*found)[2].trips, 6);
}

TEST(HloCollectivesTest, RefusesWhatItCannotCount) {
  const auto loop = ParseHloCollectives(R"(
%body (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %r = f32[4]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add
}

ENTRY %main (z: f32[4]) -> f32[4] {
  %z = f32[4]{0} parameter(0)
  ROOT %w = f32[4]{0} while(%z), condition=%body, body=%body
}
)");
  EXPECT_THAT(loop.status().ToString(), HasSubstr("loop w holds r and its trips cannot be told"));
  EXPECT_THAT(ParseReplicaGroups("[2,2]<=[3]").status().ToString(), HasSubstr("no known form"));
}

}  // namespace
}  // namespace mw::train
