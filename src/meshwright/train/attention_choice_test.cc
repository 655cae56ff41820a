#include "meshwright/train/attention_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

models::ModelConfig Model() {
  models::ModelConfig config = *models::LoadPreset("tiny-qwen3");
  config.head_dim = 64;
  return config;
}

EngineOptions Options(const std::string& attention, const std::string& platform,
                      const MeshSettings& mesh = {}) {
  EngineOptions options;
  options.model.attention = attention;
  options.target.platform = platform;
  options.mesh = *mesh.Resolve(0);
  return options;
}

// Of rows of 256 tokens unless said otherwise: the form, or why flash is refused.
std::string Choice(const EngineOptions& options, int64_t tokens = 256,
                   const models::ModelConfig& model = Model()) {
  const auto choice = ChooseAttention(model, options, tokens);
  if (!choice.ok()) return std::string(choice.status().message());
  return choice->why_plain.empty() ? choice->name() : choice->name() + ": " + choice->why_plain;
}

TEST(AttentionChoiceTest, AutoIsFlashWhereThereIsAKernel) {
  EXPECT_EQ(Choice(Options("auto", "tpu")), "flash");
  EXPECT_EQ(Choice(Options("auto", "cpu")), "flash");
  // Of any size.
  EXPECT_EQ(Choice(Options("auto", "cpu"), 250), "flash");
  EXPECT_EQ(Choice(Options("auto", "cuda")), "plain");
  EngineOptions without = Options("auto", "cpu");
  without.model.kernels = false;
  EXPECT_EQ(Choice(without), "plain");
  without.model.attention = "flash";
  EXPECT_THAT(Choice(without), HasSubstr("kernels=false leaves everything to the compiler"));
  EXPECT_EQ(Choice(Options("plain", "tpu")), "plain");
  EXPECT_EQ(Choice(Options("flash", "tpu")), "flash");
  EXPECT_EQ(Choice(Options("auto", "tpu"), 250),
            "plain: rows have 250 tokens; multiples of 128 have a kernel, such as 256");
  models::ModelConfig model = Model();
  model.head_dim = 80;
  EXPECT_EQ(Choice(Options("auto", "tpu"), 256, model),
            "plain: a head has size 80; 64, 128, 192 and 256 have a kernel");
}

TEST(AttentionChoiceTest, FlashWithoutAKernelSaysWhyAndWhatWorks) {
  EXPECT_EQ(Choice(Options("flash", "cuda")),
            "attention=flash: there are kernels for CPUs and TPUs, and the device is cuda; "
            "attention=plain works everywhere, auto is flash where it can be");
  EXPECT_THAT(Choice(Options("flash", "tpu"), 100),
              HasSubstr("rows have 100 tokens; multiples of 128 have a kernel, such as 128"));
}

TEST(AttentionChoiceTest, MeshesThatCannotDivideAKernel) {
  MeshSettings mesh;
  mesh.mesh = "data=2,tensor=2";
  EXPECT_EQ(Choice(Options("auto", "tpu", mesh)), "flash");
  mesh.shard_mode = "auto";
  EXPECT_THAT(Choice(Options("auto", "tpu", mesh)), HasSubstr("plain: shard_mode=auto"));
  mesh.shard_mode = "explicit";
  mesh.mesh = "context=2";
  EXPECT_EQ(Choice(Options("auto", "tpu", mesh)),
            "plain: context splits the tokens of a row, and the kernel takes whole rows");
}

// What the choice does to a program: kernels in place of a matrix of scores.
TEST(AttentionChoiceTest, ProgramsFollowIt) {
  const auto model = *models::CreateModel(Model());
  const auto text = [&](EngineOptions options) {
    options.loss.head_chunk_tokens = 64;
    const auto program = BuildFirstKernel(*model, options, {2, 384});
    return program.ok() ? program->stablehlo : std::string(program.status().message());
  };
  constexpr const char* kCall = "tpu_custom_call";
  constexpr const char* kCpuCall = "meshwright.attention";
  constexpr const char* kScores = "384x384";
  const std::string flash = text(Options("auto", "tpu"));
  EXPECT_THAT(flash, HasSubstr(kCall));
  EXPECT_THAT(flash, HasSubstr("cost_estimate"));
  EXPECT_THAT(flash, Not(HasSubstr(kScores)));
  const std::string on_cpu = text(Options("auto", "cpu"));
  EXPECT_THAT(on_cpu, HasSubstr(kCpuCall));
  EXPECT_THAT(on_cpu, Not(HasSubstr(kScores)));
  for (const EngineOptions& options :
       {Options("auto", "cuda"), Options("plain", "cpu"), Options("plain", "tpu")}) {
    const std::string plain = text(options);
    EXPECT_THAT(plain, Not(HasSubstr(kCall)));
    EXPECT_THAT(plain, Not(HasSubstr(kCpuCall)));
    EXPECT_THAT(plain, HasSubstr(kScores));
  }
  EngineOptions silent = Options("auto", "tpu");
  silent.target.declare_kernel_costs = false;
  EXPECT_THAT(text(silent), Not(HasSubstr("cost_estimate")));
  EXPECT_THAT(text(silent), HasSubstr(kCall));
  EXPECT_THAT(text(Options("flash", "cuda")), HasSubstr("attention=flash: "));
}

}  // namespace
}  // namespace mw::train
