// What programs of a step have for one platform and not for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/nn/operand.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {
namespace {

int64_t NumOf(std::string_view text, std::string_view what) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

// Of the first micro-batch's program.
int64_t NumBarriers(int64_t width, const std::string& platform) {
  models::ModelConfig config = *models::LoadPreset("tiny-llama");
  config.hidden_size = width;
  config.num_layers = 1;
  const auto model = models::CreateModel(config);
  EXPECT_TRUE(model.ok()) << model.status();
  EngineOptions options;
  options.target.platform = platform;
  options.model.scan_layers = false;
  options.model.remat_policy = "none";
  options.mesh = *MeshSettings().Resolve(1);
  const auto program = BuildFirstKernel(**model, options, BatchShape{2, 32});
  EXPECT_TRUE(program.ok()) << program.status();
  return NumOf(program->stablehlo, "optimization_barrier");
}

// The inputs of attention, MLP and head, and gate, up and their product; and the gradient of each.
TEST(TargetProgramsTest, TpusMakeTheOperandsOfAWideModelsProductsOnce) {
  const int64_t usual = NumBarriers(nn::kWideModel - 64, "tpu");
  EXPECT_GE(NumBarriers(nn::kWideModel, "tpu") - usual, 12);
  for (const char* platform : {"cpu", "cuda"}) {
    EXPECT_EQ(NumBarriers(nn::kWideModel, platform), usual) << platform;
  }
}

// The part of the program's first line that says what goes in, or what comes out.
std::string Interface(const compile::Program& program, bool inputs) {
  const size_t begin = program.stablehlo.find("@main(");
  const size_t arrow = program.stablehlo.find(") -> (", begin);
  const size_t end = program.stablehlo.find('\n', arrow);
  return inputs ? program.stablehlo.substr(begin, arrow - begin)
                : program.stablehlo.substr(arrow, end - arrow);
}

int64_t NumNative(const std::string& text) { return NumOf(text, "layout_mode"); }

// What first_kernel gathers lies as accum_kernel reads it; nothing that a host reads or writes
// does.
TEST(TargetProgramsTest, GatheredWeightsLieAsTheTargetReadsThem) {
  const auto model = models::CreateModel(*models::LoadPreset("tiny-llama"));
  ASSERT_TRUE(model.ok()) << model.status();
  MeshSettings mesh;
  mesh.mesh = "fsdp=2";
  mesh.gather_parameters = "update";
  mesh.reduce_gradients = "fsdp=update";
  EngineOptions options;
  options.model.compute_dtype = DType::kBF16;
  options.model.scan_layers = true;
  options.mesh = *mesh.Resolve(2);
  const auto expect = [&](int64_t count) {
    const BatchShape shape{2, 32};
    const auto first = BuildFirstKernel(**model, options, shape);
    const auto accum = BuildAccumKernel(**model, options, shape);
    const auto gather = BuildGatherKernel(**model, options);
    const auto update = BuildUpdateKernel(**model, options);
    ASSERT_TRUE(first.ok() && accum.ok() && gather.ok() && update.ok());
    EXPECT_EQ(NumNative(Interface(*first, true)), 0);
    EXPECT_EQ(NumNative(Interface(*first, false)), count);
    EXPECT_EQ(NumNative(Interface(*accum, true)), count);
    EXPECT_EQ(NumNative(Interface(*accum, false)), 0);
    EXPECT_EQ(NumNative(Interface(*gather, false)), count);
    EXPECT_EQ(NumNative(update->stablehlo), 0);
  };
  expect(0);
  options.target.platform = "tpu";
  options.target.device_kind = "TPU7x";
  expect(9);  // seven matrices of a layer, table and head
}

// Kernels of AdamW in the update of a model, whose parameters are `all`.
int64_t NumAdamWKernels(EngineOptions options, const std::string& mesh, int64_t* all) {
  const auto model = models::CreateModel(*models::LoadPreset("tiny-llama"));
  EXPECT_TRUE(model.ok()) << model.status();
  MeshSettings settings;
  settings.mesh = mesh;
  options.mesh = *settings.Resolve(mesh.empty() ? 1 : 2);
  *all = static_cast<int64_t>((*model)->Params(options.model).size());
  const auto update = BuildUpdateKernel(**model, options);
  EXPECT_TRUE(update.ok()) << update.status();
  return NumOf(update->stablehlo, "meshwright.adamw");
}

TEST(TargetProgramsTest, OneCpuUpdatesInPlace) {
  EngineOptions options;
  int64_t all = 0;
  options.target.platform = "cpu";
  EXPECT_EQ(NumAdamWKernels(options, "", &all), all);
  EXPECT_EQ(NumAdamWKernels(options, "fsdp=2", &all), 0);
  options.optimizer.opt_type = "muon";
  const int64_t of_muon = NumAdamWKernels(options, "", &all);
  EXPECT_GT(of_muon, 0);
  EXPECT_LT(of_muon, all);
  options.optimizer.opt_type = "sgd";
  EXPECT_EQ(NumAdamWKernels(options, "", &all), 0);
  options.optimizer.opt_type = "adamw";
  options.target.kernels = false;
  EXPECT_EQ(NumAdamWKernels(options, "", &all), 0);
  options.target = {.platform = "tpu"};
  EXPECT_EQ(NumAdamWKernels(options, "", &all), 0);
}

// Products in the program of a micro-batch whose head goes over chunks, on each of two devices too.
int64_t NumProducts(double z_loss, const std::string& mesh) {
  const auto model = models::CreateModel(*models::LoadPreset("tiny-llama"));
  EXPECT_TRUE(model.ok()) << model.status();
  EngineOptions options;
  options.loss.z_loss = z_loss;
  options.loss.head_chunk_tokens = 16;
  MeshSettings settings;
  settings.mesh = mesh;
  options.mesh = *settings.Resolve(mesh.empty() ? 1 : 2);
  const auto program = BuildFirstKernel(**model, options, BatchShape{2, 32});
  EXPECT_TRUE(program.ok()) << program.status();
  return NumOf(program->stablehlo, "dot_general");
}

TEST(TargetProgramsTest, TheHeadsLogitsAreComputedOnceForCrossEntropy) {
  for (const char* mesh : {"", "data=2", "fsdp=2"}) {
    EXPECT_EQ(NumProducts(0, mesh) + 1, NumProducts(1e-4, mesh)) << mesh;
  }
}

}  // namespace
}  // namespace mw::train
