#include "meshwright/models/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "meshwright/models/registry.h"

namespace mw::models {
namespace {

using ::testing::HasSubstr;

// Counts of the published checkpoints (model cards and safetensors indices).
TEST(PresetsTest, ParameterCountsArePublishedOnes) {
  const std::pair<const char*, int64_t> cases[] = {
      {"llama3.1-8b", 8030261248}, {"llama3.2-1b", 1235814400},  {"smollm2-135m", 134515008},
      {"smollm2-360m", 361821120}, {"smollm2-1.7b", 1711376384}, {"qwen3-0.6b", 596049920},
      {"qwen3-1.7b", 1720574976},  {"qwen3-4b", 4022468096},     {"qwen3-8b", 8190735360}};
  for (const auto& [name, count] : cases) {
    const auto config = LoadPreset(name);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->NumParameters(), count) << name;
  }
}

TEST(PresetsTest, SpecsOfAModelAddUpToItsCount) {
  for (const std::string& name : PresetNames()) {
    const auto config = LoadPreset(name);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto model = CreateModel(*config);
    ASSERT_TRUE(model.ok()) << model.status();
    for (const bool scan : {true, false}) {
      int64_t count = 0;
      for (const nn::ParamSpec& spec : (*model)->Params({.scan_layers = scan})) {
        EXPECT_EQ(spec.axes.size(), spec.dims.size()) << spec.name;
        EXPECT_EQ(static_cast<int64_t>(spec.hf_names.size()), spec.stacked ? spec.dims[0] : 1);
        EXPECT_EQ(spec.decay, spec.name.find("norm") == std::string::npos) << spec.name;
        count += NumElements(spec.dims);
      }
      EXPECT_EQ(count, config->NumParameters()) << name;
    }
  }
}

TEST(PresetsTest, UnknownNameSuggestsTheNearest) {
  const auto config = LoadPreset("qwen3-0.6");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("the nearest is \"qwen3-0.6b\""));
  EXPECT_FALSE(LoadPreset("").ok());
  EXPECT_FALSE(LoadPreset("../models/qwen3-0.6b", MW_SOURCE_DIR "/configs/models").ok());
}

TEST(PresetsTest, AFolderTakesPrecedence) {
  const std::string dir = ::testing::TempDir() + "/presets";
  std::filesystem::create_directories(dir);
  std::ifstream in(MW_SOURCE_DIR "/configs/models/tiny-llama.yaml");
  std::ofstream(dir + "/tiny-llama.yaml") << in.rdbuf() << "initializer_range: 0.5\n";
  EXPECT_EQ(LoadPreset("tiny-llama", dir)->initializer_range, 0.5);
  EXPECT_EQ(LoadPreset("tiny-llama")->initializer_range, 0.02);
  EXPECT_TRUE(LoadPreset("tiny-qwen3", dir).ok());
}

TEST(PresetsTest, BadYamlIsAnErrorNamingTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"family: llama\nhiden_size: 3\n", "hidden_size"},
      {"family: llama\nhidden_size: many\n", "hidden_size"},
      {"family: llama\nrope: {thta: 1}\n", "theta"},
      {"family: llama\nrope: {type: yarn}\n", "yarn"},
      {"family: gpt\n", "llama, qwen3"},
      {"family: llama\n", "vocab_size"},
      {"- 1\n", "map"},
      {"family: [", "test.yaml"},
      {"", "map"}};
  for (const auto& [text, expected] : cases) {
    const auto config = ModelConfigFromYaml(text, "test.yaml");
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(expected)) << text;
  }
}

}  // namespace
}  // namespace mw::models
