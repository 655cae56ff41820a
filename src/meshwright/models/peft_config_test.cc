#include "meshwright/models/peft_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace mw::models {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// As peft 0.21.2 saves it, without most of the keys that are null.
json Saved() {
  return {{"alpha_pattern", json::object()},
          {"base_model_name_or_path", "example/base"},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"loftq_config", json::object()},
          {"lora_alpha", 16},
          {"lora_dropout", 0.05},
          {"megatron_core", "megatron.core"},
          {"modules_to_save", nullptr},
          {"peft_type", "LORA"},
          {"peft_version", "0.21.2"},
          {"qalora_group_size", 16},
          {"r", 8},
          {"rank_pattern", json::object()},
          {"target_modules", {"v_proj", "q_proj"}},
          {"task_type", "CAUSAL_LM"},
          {"use_dora", false},
          {"use_rslora", false}};
}

std::string ErrorWith(const char* key, const json& value) {
  json saved = Saved();
  saved[key] = value;
  return std::string(PeftConfigFromJson(saved.dump()).status().message());
}

TEST(PeftConfigTest, ReadsWhatPeftSaves) {
  const auto config = PeftConfigFromJson(Saved().dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->lora.rank, 8);
  EXPECT_EQ(config->lora.alpha, 16);
  EXPECT_EQ(config->lora.target_modules, "q_proj,v_proj");
  EXPECT_FALSE(config->lora.use_rslora);
  EXPECT_EQ(config->base, "example/base");
  EXPECT_EQ(config->dropout, 0.05);
  json all = Saved();
  all["target_modules"] = LoraModules();
  EXPECT_EQ(PeftConfigFromJson(all.dump())->lora.target_modules, "all-linear");
  all["target_modules"] = "all-linear";
  EXPECT_EQ(PeftConfigFromJson(all.dump())->lora.target_modules, "all-linear");
}

TEST(PeftConfigTest, WrittenConfigsAreReadBack) {
  PeftConfig config;
  config.lora = {.rank = 4, .alpha = 6.5, .target_modules = "o_proj", .use_rslora = true};
  config.base = "/models/base";
  const std::string text = PeftConfigToJson(config);
  const auto read = PeftConfigFromJson(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->lora.SameAs(config.lora));
  EXPECT_EQ(read->base, config.base);
  const json written = json::parse(text);
  EXPECT_EQ(written["peft_type"], "LORA");
  EXPECT_EQ(written["task_type"], "CAUSAL_LM");
  EXPECT_EQ(written["target_modules"], json({"o_proj"}));
  config.lora.alpha = 16;
  EXPECT_TRUE(json::parse(PeftConfigToJson(config))["lora_alpha"].is_number_integer());
}

TEST(PeftConfigTest, RefusesWhatWouldComputeSomethingElse) {
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, json>>{{"use_dora", true},
                                                 {"bias", "lora_only"},
                                                 {"modules_to_save", {"lm_head"}},
                                                 {"rank_pattern", {{"q_proj", 4}}},
                                                 {"alpha_pattern", {{"q_proj", 4}}},
                                                 {"layers_to_transform", {0, 1}},
                                                 {"fan_in_fan_out", true},
                                                 {"exclude_modules", {"q_proj"}},
                                                 {"trainable_token_indices", {1}},
                                                 {"target_parameters", {"experts"}},
                                                 {"lora_bias", true},
                                                 {"a_key_of_tomorrow", 0.5},
                                                 {"peft_type", "IA3"},
                                                 {"task_type", "SEQ_CLS"},
                                                 {"init_lora_weights", "pissa"},
                                                 {"target_modules", ".*_proj"}}) {
    EXPECT_THAT(ErrorWith(key, value), AllOf(HasSubstr(key), HasSubstr("is not supported"))) << key;
    json saved = Saved();
    saved[key] = value;
    EXPECT_EQ(PeftConfigFromJson(saved.dump()).status().code(), absl::StatusCode::kUnimplemented);
  }
}

TEST(PeftConfigTest, RefusesWhatCannotBe) {
  EXPECT_THAT(ErrorWith("r", 0), HasSubstr("r is 0, not a positive integer"));
  EXPECT_THAT(ErrorWith("r", "8"), HasSubstr("not a positive integer"));
  EXPECT_THAT(ErrorWith("r", 1e9), HasSubstr("r is"));
  EXPECT_THAT(ErrorWith("lora_alpha", nullptr), HasSubstr("lora_alpha"));
  EXPECT_THAT(ErrorWith("lora_alpha", -1), HasSubstr("lora.alpha must be positive"));
  EXPECT_THAT(ErrorWith("use_rslora", "yes"), HasSubstr("use_rslora"));
  EXPECT_THAT(ErrorWith("base_model_name_or_path", 3), HasSubstr("base_model_name_or_path"));
  EXPECT_THAT(ErrorWith("target_modules", json::array()), HasSubstr("a list of module names"));
  EXPECT_THAT(ErrorWith("target_modules", {"q_proj", "lm_head"}), HasSubstr("\"lm_head\""));
  EXPECT_THAT(ErrorWith("target_modules", {1}), HasSubstr("a list of module names"));
  for (const char* text : {"", "[]", "{", "3"}) {
    EXPECT_THAT(std::string(PeftConfigFromJson(text).status().message()),
                HasSubstr("no JSON object"));
  }
}

}  // namespace
}  // namespace mw::models
