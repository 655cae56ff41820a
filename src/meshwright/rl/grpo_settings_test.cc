#include "meshwright/rl/grpo_settings.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace mw::rl {
namespace {

train::TrainConfig Config(std::vector<std::string> settings) {
  settings.insert(settings.begin(), "loss.name=grpo");
  auto config = train::LoadConfig("", settings);
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

TEST(MaxSegmentsTest, AreThoseOfTheShortestPromptsOfAnUpdate) {
  const auto most = [](std::vector<std::string> settings, std::vector<int64_t> lengths) {
    settings.insert(settings.begin(), {"max_target_length=100", "prompts_per_step=4",
                                       "num_generations=3", "batch_size=12"});
    train::TrainConfig config = Config(settings);
    EXPECT_TRUE(FinishGrpoSettings(config).ok());
    return MaxSegments(config, std::move(lengths));
  };
  // 3 x 10 tokens, 3 x 20, and no room for 31.
  EXPECT_EQ(most({}, {30, 9, 19, 40}), 6);
  EXPECT_EQ(most({"packing=false"}, {30, 9, 19, 40}), 1);
  // One short prompt among long ones has no more than its own samples.
  EXPECT_EQ(most({}, {1, 49, 49, 49}), 4);
  EXPECT_EQ(most({}, {1, 1, 1, 1}), 12);
  EXPECT_EQ(most({"batch_size=6", "gradient_accumulation_steps=1"}, {1, 1, 1, 1}), 6);
  EXPECT_EQ(most({}, {99, 99}), 1);
  EXPECT_EQ(most({}, {200}), 1);
  // Fewer prompts than a batch draws: each of them several times.
  EXPECT_EQ(most({}, {9, 40}), 6);
  EXPECT_EQ(most({"num_generations=64", "batch_size=256", "max_target_length=4096"}, {1, 1, 1, 1}),
            64);
}

TEST(AssumeGrpoRunTest, IsWhatARunOfSuchPromptsHas) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{},
                                             {"packing=false"},
                                             {"gradient_accumulation_steps=2", "batch_size=16"},
                                             {"old_log_probs=sampler", "temperature=0.7"}}) {
    std::vector<std::string> settings = {"max_target_length=128"};
    settings.insert(settings.end(), more.begin(), more.end());
    train::TrainConfig run = Config(settings);
    ASSERT_TRUE(FinishGrpoSettings(run).ok());
    run.engine.loss.grpo.max_segments = MaxSegments(run, std::vector<int64_t>(8, 1));
    train::TrainConfig assumed = Config(settings);
    ASSERT_TRUE(AssumeGrpoRun(assumed).ok());
    EXPECT_EQ(assumed.gradient_accumulation_steps, run.gradient_accumulation_steps);
    EXPECT_EQ(assumed.engine.loss.grpo, run.engine.loss.grpo);
  }
  train::TrainConfig refused = Config({"temperature=0"});
  EXPECT_THAT(AssumeGrpoRun(refused).message(), ::testing::HasSubstr("temperature=0 makes"));
}

}  // namespace
}  // namespace mw::rl
