// Rules that let axes of the batch shard the vocabulary: the numbers of one device, and the
// whole embedding table on none.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/step_programs.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kVocabSize = 96;
// The table as the text of a program has it, whatever its dtype.
constexpr const char* kWholeTable = "tensor<96x32x";

models::ModelConfig Config(bool tied) { return MeshConfig(tied ? "qwen3" : "llama", kVocabSize); }

struct Layout {
  std::string mesh;
  std::string rules = "fsdp-vocab";
  std::string gather = "layer";
  std::string reduce = "";
  bool tied = true;
  DType compute = DType::kF32;
};

EngineOptions Options(const Layout& layout) {
  EngineOptions options = TestOptions();
  options.loss.head_chunk_tokens = 24;
  options.model.compute_dtype = layout.compute;
  MeshSettings settings;
  settings.mesh = layout.mesh;
  settings.custom_mesh_and_rule = layout.rules;
  settings.gather_parameters = layout.gather;
  settings.reduce_gradients = layout.reduce;
  auto mesh = settings.Resolve(0);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  options.mesh = *mesh;
  options.mesh.check_replicas = !layout.mesh.empty();
  return options;
}

struct Outcome {
  std::vector<HostTensor> gradients;
  double loss = 0;
  std::vector<HostTensor> params;
  std::map<std::string, std::string> programs;
};

// One update of two micro-batches.
Outcome Train(const Layout& layout) {
  const auto model = *models::CreateModel(Config(layout.tied));
  const EngineOptions options = Options(layout);
  auto client = TestMeshClient();
  EXPECT_TRUE(client.ok()) << client.status();
  auto made = Engine::Create(*client, SharedTestCache(), model.get(), RandomParams(*model, options),
                             options);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return {};
  Engine& engine = **made;
  const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3, 1, 1, 8, 0, 4, 6, 2, 8};
  Ok(engine.FwdBwd(Rows(counts, 0, 8)));
  Ok(engine.FwdBwd(Rows(counts, 8, 16)));
  Outcome outcome;
  auto gradients = engine.ReadGradients();
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  if (gradients.ok()) outcome.gradients = std::move(gradients->gradients);
  Ok(engine.Update());
  const StepMetrics metrics = Last(engine);
  outcome.loss = metrics.loss.sum() / metrics.loss.denominator();
  outcome.params = *engine.Params();
  for (const auto& [name, program] : engine.programs()) {
    outcome.programs[name.substr(0, name.find('['))] = program->stablehlo;
  }
  return outcome;
}

class VocabularyMeshTest : public ::testing::TestWithParam<Layout> {};

TEST_P(VocabularyMeshTest, GivesTheNumbersOfOneDeviceWithoutTheWholeTable) {
  const Outcome mesh = Train(GetParam());
  const Outcome single = Train({.mesh = "", .rules = "default", .tied = GetParam().tied});
  EXPECT_NEAR(mesh.loss, single.loss, 1e-4);
  ASSERT_EQ(mesh.gradients.size(), single.gradients.size());
  for (size_t i = 0; i < mesh.gradients.size(); ++i) {
    EXPECT_LE(RelativeL2(mesh.gradients[i], single.gradients[i]), 1e-5) << "gradient " << i;
  }
  EXPECT_EQ(mesh.programs.size(), 3U);
  for (const auto& [name, text] : mesh.programs) {
    EXPECT_THAT(text, Not(HasSubstr(kWholeTable))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, VocabularyMeshTest,
    ::testing::Values(Layout{.mesh = "fsdp=4"}, Layout{.mesh = "fsdp=4", .tied = false},
                      Layout{.mesh = "data=2,fsdp=2,tensor=2"},
                      Layout{.mesh = "data=2,fsdp=4", .gather = "update", .reduce = "fsdp=update"}),
    [](const auto& info) {
      std::string name = fmt::format("{}_{}{}", info.param.mesh, info.param.gather,
                                     info.param.tied ? "" : "_llama");
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

// Without such rules the table is gathered: what the test above looks for is there to be found.
TEST(VocabularyMeshControlTest, OtherRulesGatherTheTable) {
  const auto model = *models::CreateModel(Config(true));
  const auto program =
      BuildFirstKernel(*model, Options({.mesh = "fsdp=4", .rules = "default"}), {8, kTokens});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(program->stablehlo, HasSubstr(kWholeTable));
}

}  // namespace
}  // namespace mw::train
