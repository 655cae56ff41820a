#include "meshwright/models/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "meshwright/models/presets.h"

namespace mw::models {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// config.json of HuggingFaceTB/SmolLM2-135M-Instruct.
constexpr char kSmolLm2[] = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
  "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
  "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.42.3",
  "use_cache": true, "vocab_size": 49152})";

// config.json of meta-llama/Llama-3.2-1B-Instruct.
constexpr char kLlama32[] = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009],
  "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
  "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
  "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})";

// config.json of Qwen/Qwen3-0.6B.
constexpr char kQwen3[] = R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
  "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
  "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936})";

std::string ReadTestFile(const std::string& name) {
  std::ifstream file(MW_SOURCE_DIR "/src/meshwright/models/testdata/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(HfConfigTest, ReadsPublishedConfigsAsThePresetsSay) {
  const std::pair<const char*, const char*> cases[] = {
      {"smollm2-135m", kSmolLm2}, {"llama3.2-1b", kLlama32}, {"qwen3-0.6b", kQwen3}};
  for (const auto& [preset, text] : cases) {
    auto config = ModelConfigFromHfJson(text);
    ASSERT_TRUE(config.ok()) << config.status();
    auto expected = LoadPreset(preset);
    ASSERT_TRUE(expected.ok()) << expected.status();
    // What a preset does not say.
    config->initializer_range = expected->initializer_range;
    if (config->eos_token_ids.size() == 3) config->eos_token_ids = {128001};
    EXPECT_EQ(*config, *expected) << preset;
  }
  EXPECT_EQ(ModelConfigFromHfJson(kLlama32)->eos_token_ids,
            (std::vector<int64_t>{128001, 128008, 128009}));
}

TEST(HfConfigTest, ReadsWhatTransformers5Writes) {
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    const auto config = ModelConfigFromHfJson(ReadTestFile(std::string(name) + "/config.json"));
    ASSERT_TRUE(config.ok()) << config.status();
    auto expected = LoadPreset(name);
    ASSERT_TRUE(expected.ok()) << expected.status();
    expected->initializer_range = 0.15;
    EXPECT_EQ(*config, *expected);
  }
}

TEST(HfConfigTest, WrittenConfigsReadBack) {
  for (const std::string& name : PresetNames()) {
    const auto config = LoadPreset(name);
    ASSERT_TRUE(config.ok());
    const auto text = ModelConfigToHfJson(*config, DType::kBF16);
    ASSERT_TRUE(text.ok()) << text.status();
    const auto again = ModelConfigFromHfJson(*text);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *config) << name;
    EXPECT_EQ(Json::parse(*text)["torch_dtype"], "bfloat16");
  }
}

TEST(HfConfigTest, OldKeyTypeIsReadToo) {
  Json json = Json::parse(kLlama32);
  json["rope_scaling"]["type"] = "llama3";
  json["rope_scaling"].erase("rope_type");
  EXPECT_EQ(ModelConfigFromHfJson(json.dump())->rope, ModelConfigFromHfJson(kLlama32)->rope);
}

TEST(HfConfigTest, WhatChangesTheMathsIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"hidden_act": "gelu"})", "hidden_act"},
      {R"({"attention_bias": true})", "attention_bias"},
      {R"({"mlp_bias": true})", "mlp_bias"},
      {R"({"use_sliding_window": true, "sliding_window": 4096})", "use_sliding_window"},
      {R"({"sliding_window": 4096})", "sliding_window"},
      {R"({"layer_types": ["full_attention", "sliding_attention"]})", "layer_types"},
      {R"({"quantization_config": {"bits": 4}})", "quantization_config"},
      {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor"},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})", "yarn"},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 4.0}})", "dynamic"},
      {R"({"rope_scaling": {"factor": 4.0}})", "rope_type"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}})", "low_freq_factor"},
      {R"({"rope_scaling": "llama3"})", "rope_scaling"},
      {R"({"architectures": ["MambaForCausalLM"]})", "LlamaForCausalLM, Qwen3ForCausalLM"},
      {R"({"architectures": null})", "architectures"},
      {R"({"hidden_size": null})", "hidden_size"},
      {R"({"hidden_size": "576"})", "hidden_size"},
      {R"({"hidden_size": 576.5})", "hidden_size"},
      {R"({"hidden_size": -576})", "hidden_size"},
      {R"({"vocab_size": 99999999999})", "vocab_size"},
      {R"({"num_attention_heads": 0})", "num_attention_heads"},
      {R"({"num_key_value_heads": 4})", "num_kv_heads"},
      {R"({"rms_norm_eps": 0})", "rms_norm_eps"},
      {R"({"rms_norm_eps": 1e-50})", "rms_norm_eps 1e-50"},
      {R"({"rope_theta": 1e39})", "rope_theta 1e+39"},
      {R"({"rope_theta": 1e-60})", "rope_theta 1e-60"},
      {R"({"torch_dtype": "float17"})", "torch_dtype: \"float17\""},
      {R"({"model_type": "qwen3"})", "model_type: \"qwen3\" contradicts"},
      {R"({"eos_token_id": "2"})", "eos_token_id"},
      {R"({"eos_token_id": 4294967298})", "eos_token_id"},
      {R"({"eos_token_id": [2, -7]})", "eos_token_id: -7 is no token id"},
      {R"({"tie_word_embeddings": 1})", "tie_word_embeddings"},
  };
  for (const auto& [patch, expected] : cases) {
    Json json = Json::parse(kSmolLm2);
    json.update(Json::parse(patch));
    const auto config = ModelConfigFromHfJson(json.dump());
    ASSERT_FALSE(config.ok()) << patch;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(expected)) << patch;
  }
  for (const char* text : {"", "[]", "{", "null", "{\"architectures\": [1]}"}) {
    EXPECT_FALSE(ModelConfigFromHfJson(text).ok()) << text;
  }
}

// transformers takes them too.
TEST(HfConfigTest, OddValuesOfPublishedModelsAreTaken) {
  for (const char* patch :
       {R"({"pad_token_id": -1})", R"({"pad_token_id": null})", R"({"eos_token_id": [2, 7]})",
        R"({"eos_token_id": -1})", R"({"torch_dtype": null})", R"({"torch_dtype": "auto"})",
        R"({"dtype": "torch.bfloat16"})", R"({"model_type": null})"}) {
    Json json = Json::parse(kSmolLm2);
    json.update(Json::parse(patch));
    EXPECT_TRUE(ModelConfigFromHfJson(json.dump()).ok()) << patch;
  }
}

}  // namespace
}  // namespace mw::models
