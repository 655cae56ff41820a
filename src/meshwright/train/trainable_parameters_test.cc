#include "meshwright/train/trainable_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/models/registry.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<nn::ParamSpec> Params() {
  return (*models::CreateModel(TinyConfig()))->Params(TestOptions().model);
}

// The names that a list of patterns chooses.
std::vector<std::string> Chosen(const std::string& patterns) {
  const std::vector<nn::ParamSpec> params = Params();
  const auto chosen = MatchParameters("key", patterns, params);
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  std::vector<std::string> names;
  for (size_t i = 0; chosen.ok() && i < params.size(); ++i) {
    if ((*chosen)[i]) names.push_back(params[i].name);
  }
  return names;
}

TEST(TrainableParametersTest, Patterns) {
  EXPECT_THAT(Chosen("norm.weight"), ElementsAre("norm.weight"));
  EXPECT_THAT(Chosen("*.q_proj.*,lm_head.weight"),
              ElementsAre("layers.self_attn.q_proj.weight", "lm_head.weight"));
  EXPECT_THAT(Chosen("*.?_proj.weight,!*.o_*"),
              ElementsAre("layers.self_attn.q_proj.weight", "layers.self_attn.k_proj.weight",
                          "layers.self_attn.v_proj.weight"));
  EXPECT_THAT(Chosen("!layers.*"),
              ElementsAre("embed_tokens.weight", "norm.weight", "lm_head.weight"));
  // The order of patterns does not matter.
  EXPECT_EQ(Chosen("!*.o_*,*_proj.*"), Chosen("*_proj.*,!*.o_*"));
  EXPECT_EQ(Chosen("*").size(), Params().size());
  EXPECT_EQ(Chosen("**w*t").size(), Params().size());
  EXPECT_THAT(Chosen("*,!*"), IsEmpty());
}

TEST(TrainableParametersTest, APatternThatMatchesNothingNamesTheNearest) {
  std::vector<nn::ParamSpec> params = Params();
  const auto message = [&](const char* patterns) {
    return std::string(SelectTrainable(patterns, params).message());
  };
  EXPECT_THAT(message("*.q_prj.weight"),
              HasSubstr("trainable_parameters: the pattern \"*.q_prj.weight\" matches no "
                        "parameter; the nearest is \"layers.self_attn.q_proj.weight\""));
  EXPECT_THAT(message("norm"), HasSubstr("the nearest is \"norm.weight\""));
  EXPECT_THAT(message("*,!lm_hed.*"), HasSubstr("\"lm_hed.*\" matches no parameter; the nearest "
                                                "is \"lm_head.weight\""));
  EXPECT_THAT(message("*,"), HasSubstr("has an empty pattern"));
  EXPECT_THAT(message("!"), HasSubstr("has an empty pattern"));
  EXPECT_THAT(message("!*"), HasSubstr("leaves no parameter to train"));
  for (const nn::ParamSpec& param : params) EXPECT_TRUE(param.trainable) << param.name;
}

TEST(TrainableParametersTest, SetsWhatItSays) {
  std::vector<nn::ParamSpec> params = Params();
  Ok(SelectTrainable("layers.mlp.*", params));
  Ok(SelectDecayed("norm.weight", params));
  for (const nn::ParamSpec& param : params) {
    EXPECT_EQ(param.trainable, param.name.starts_with("layers.mlp.")) << param.name;
    EXPECT_EQ(param.decay, param.name == "norm.weight") << param.name;
  }
  std::vector<nn::ParamSpec> same = Params();
  Ok(SelectTrainable("", same));
  Ok(SelectDecayed("", same));
  for (const nn::ParamSpec& param : same) {
    EXPECT_TRUE(param.trainable);
    EXPECT_EQ(param.decay, param.dims.size() > 1 && param.name.find("norm") == std::string::npos);
  }
}

}  // namespace
}  // namespace mw::train
