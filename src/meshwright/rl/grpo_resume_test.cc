// Runs of grpo that are interrupted, and that are made twice.
#include <gmock/gmock.h>

#include "meshwright/rl/grpo_run_for_test.h"
#include "meshwright/rl/sample_batch.h"

namespace mw::rl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class GrpoResumeTest : public GrpoTest {
 protected:
  // Stops before micro-batch `micro_batch` of the update after `step`.
  void StopBefore(int64_t step, int64_t micro_batch) {
    options_.before_micro_batch = [this, step, micro_batch](int64_t s, int64_t m,
                                                            const data::Batch&) {
      if (s == step && m == micro_batch) stop_ = true;
    };
  }
  // A run that is stopped there and continued, as often as there are places.
  std::vector<ordered_json> Interrupted(const std::vector<std::string>& settings,
                                        const std::vector<std::pair<int64_t, int64_t>>& places) {
    options_.out = dir_ + "/interrupted";
    std::filesystem::remove_all(options_.out);
    options_.resume = false;
    for (const auto& [step, micro_batch] : places) {
      StopBefore(step, micro_batch);
      const auto stopped = TryRun(settings);
      EXPECT_TRUE(stopped.ok() && stopped->stopped) << stopped.status();
      stop_ = false;
      options_.resume = true;
    }
    options_.before_micro_batch = nullptr;
    const auto finished = TryRun(settings);
    EXPECT_TRUE(finished.ok() && !finished->stopped) << finished.status();
    return Lines(options_.out + "/metrics.jsonl");
  }
};

TEST_F(GrpoResumeTest, TheSameSeedGivesTheSameCurve) {
  const auto first = Run({"loss.kl_coef=0.1", "num_iterations=2"}, "first");
  const auto second = Run({"loss.kl_coef=0.1", "num_iterations=2"}, "second");
  EXPECT_EQ(Reproducible(first), Reproducible(second));
  EXPECT_EQ(Samples("first"), Samples("second"));
  EXPECT_EQ(Weights(3, "first"), Weights(3, "second"));
  // Negative control.
  EXPECT_NE(Reproducible(first),
            Reproducible(Run({"loss.kl_coef=0.1", "num_iterations=2", "seed=4"})));
}

// Between batches, between the updates of one and between the micro-batches of one.
TEST_F(GrpoResumeTest, AContinuedRunHasTheBitsOfAStraightOne) {
  options_.eval_data = options_.data[0];
  // 12 rows: 3 micro-batches an update, 2 updates a batch; reference and old log-probs.
  const std::vector<std::string> settings = {"steps=6", "num_iterations=2", "loss.kl_coef=0.1",
                                             "eval_interval=3", "batch_size=4"};
  const auto straight = Run(settings, "straight");
  for (const auto& places : std::vector<std::vector<std::pair<int64_t, int64_t>>>{
           {{0, 1}}, {{1, 0}}, {{2, 0}}, {{3, 2}}, {{1, 1}, {3, 1}, {4, 0}}}) {
    const auto interrupted = Interrupted(settings, places);
    EXPECT_EQ(Reproducible(straight), Reproducible(interrupted)) << places.size();
    EXPECT_EQ(Samples("straight"), Samples("interrupted"));
    EXPECT_EQ(Weights(6, "straight"), Weights(6, "interrupted"));
  }
}

TEST_F(GrpoResumeTest, PackedRowsAreContinuedAndNotCutAnew) {
  const std::vector<std::string> settings = {"steps=4", "num_iterations=2", "loss.kl_coef=0.1",
                                             "batch_size=1", "max_target_length=24"};
  const auto straight = Run(settings, "straight");
  const auto interrupted = Interrupted(settings, {{0, 1}, {2, 0}, {3, 2}});
  EXPECT_EQ(Reproducible(straight), Reproducible(interrupted));
  EXPECT_EQ(Weights(4, "straight"), Weights(4, "interrupted"));
  // Within an update rows stay as they are.
  options_.out = dir_ + "/other";
  options_.resume = false;
  StopBefore(1, 1);
  ASSERT_TRUE(TryRun(settings).ok());
  stop_ = false;
  options_.before_micro_batch = nullptr;
  options_.resume = true;
  std::vector<std::string> other = settings;
  other.emplace_back("packing=false");
  const auto refused = TryRun(other);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("packing=false"));
}

TEST_F(GrpoResumeTest, AnUpdateCanBeginAgain) {
  const std::vector<std::string> settings = {"steps=4", "num_iterations=2"};
  Run(settings, "straight");
  options_.out = dir_ + "/again";
  StopBefore(1, 1);
  ASSERT_TRUE(TryRun(settings).ok());
  stop_ = false;
  options_.before_micro_batch = nullptr;
  options_.resume = options_.restart_update = true;
  ASSERT_TRUE(TryRun(settings).ok());
  EXPECT_EQ(Weights(4, "straight"), Weights(4, "again"));
}

TEST_F(GrpoResumeTest, ACheckpointInTheMiddleIsContinued) {
  const std::vector<std::string> settings = {"steps=6", "num_iterations=3", "checkpoint_period=1",
                                             "max_num_checkpoints_to_keep=0",
                                             "advantage.mode=none"};
  const auto straight = Run(settings, "straight");
  // As a kill after step 2 would have left it, with lines that came later.
  const std::string out = dir_ + "/killed";
  std::filesystem::copy(dir_ + "/straight", out, std::filesystem::copy_options::recursive);
  for (const char* step : {"3", "4", "5", "6", "latest"}) {
    std::filesystem::remove_all(out + "/checkpoints/" + step);
  }
  options_.out = out;
  options_.resume = true;
  const auto result = TryRun(settings);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->first_step, 2);
  EXPECT_EQ(Reproducible(straight), Reproducible(Lines(out + "/metrics.jsonl")));
  EXPECT_EQ(Samples("straight"), Samples("killed"));
  EXPECT_EQ(Weights(6, "straight"), Weights(6, "killed"));
}

// A checkpoint that says less than it must is damaged, whatever is missing.
TEST(GrpoProgressTest, AMissingNumberIsDamage) {
  const ordered_json whole = {{"draws", 1},
                              {"first_step", 0},
                              {"num_updates", 1},
                              {"updates_per_batch", 2},
                              {"old_log_probs", "trainer"}};
  for (const char* const key : {"first_step", "updates_per_batch", "old_log_probs"}) {
    ordered_json progress = whole;
    progress.erase(key);
    train::CheckpointState saved;
    saved.metadata["grpo"] = progress.dump();
    saved.metadata["prompts"] = "0000000000000007";
    const absl::Status status = GrpoProgress::Read(saved, "folder", "out", {}, 7).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(key));
  }
}

TEST_F(GrpoResumeTest, OtherRewardsAreTold) {
  options_.out = dir_ + "/run";
  ASSERT_TRUE(TryRun({"steps=1"}).ok());
  options_.resume = true;
  ASSERT_TRUE(TryRun({"steps=2"}).ok());
  EXPECT_THAT(notes_, Not(HasSubstr("rewards differ")));
  const std::vector<std::string> before = options_.rewards;
  options_.rewards = {"regex", "exact"};
  ASSERT_TRUE(TryRun({"steps=3"}).ok());
  EXPECT_THAT(notes_, HasSubstr("rewards differ from those before: regex, exact (was regex)"));
  options_.rewards = before;
}

TEST_F(GrpoResumeTest, WhatIsNoContinuationIsRefused) {
  const std::vector<std::string> settings = {"num_iterations=2", "loss.kl_coef=0.1"};
  options_.out = dir_ + "/run";
  StopBefore(1, 1);
  ASSERT_TRUE(TryRun(settings).ok());
  stop_ = false;
  options_.before_micro_batch = nullptr;
  options_.resume = true;
  const auto error = [&](std::vector<std::string> more) {
    std::vector<std::string> all = settings;
    all.insert(all.end(), more.begin(), more.end());
    const auto result = TryRun(all);
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition) << result.status();
    return std::string(result.status().message());
  };
  EXPECT_THAT(error({"num_iterations=4"}),
              HasSubstr("resume with the settings of its config.yaml"));
  EXPECT_THAT(error({"num_generations=2"}), HasSubstr("resume with"));
  EXPECT_THAT(error({"old_log_probs=sampler"}), HasSubstr("old_log_probs=sampler do not continue"));
  EXPECT_THAT(error({"seed=9"}), HasSubstr("seed"));
  // A row's answer is no part of its prompt, but of the run.
  std::ofstream(dir_ + "/prompts.jsonl", std::ios::app) << "{\"prompt\": [3, 4], \"answer\": 9}\n";
  EXPECT_THAT(error({}), HasSubstr("data"));
  // Nothing was lost.
  std::filesystem::remove_all(dir_ + "/prompts.jsonl");
}

}  // namespace
}  // namespace mw::rl
