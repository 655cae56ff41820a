// What programs of a step have for one platform and not for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/nn/operand.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {
namespace {

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
  int64_t count = 0;
  const std::string& text = program->stablehlo;
  for (size_t at = text.find("optimization_barrier"); at != std::string::npos;
       at = text.find("optimization_barrier", at + 1)) {
    ++count;
  }
  return count;
}

// The inputs of attention, MLP and head, and gate, up and their product; and the gradient of each.
TEST(TargetProgramsTest, TpusMakeTheOperandsOfAWideModelsProductsOnce) {
  const int64_t usual = NumBarriers(nn::kWideModel - 64, "tpu");
  EXPECT_GE(NumBarriers(nn::kWideModel, "tpu") - usual, 12);
  for (const char* platform : {"cpu", "cuda"}) {
    EXPECT_EQ(NumBarriers(nn::kWideModel, platform), usual) << platform;
  }
}

}  // namespace
}  // namespace mw::train
