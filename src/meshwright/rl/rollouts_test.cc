#include "meshwright/rl/rollouts.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>

namespace mw::rl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A rollout of `prompt` and `completion` tokens, whose values tell whose they are.
Rollout Make(int32_t number, int64_t prompt, int64_t completion) {
  Rollout rollout;
  rollout.ids.resize(static_cast<size_t>(prompt + completion));
  std::iota(rollout.ids.begin(), rollout.ids.end(), 100 * number);
  rollout.prompt_tokens = prompt;
  rollout.advantage = static_cast<float>(number);
  for (int64_t t = 0; t < completion; ++t) {
    rollout.sampler_log_probs.push_back(-static_cast<float>(number) -
                                        0.01F * static_cast<float>(t));
  }
  rollout.ref_log_probs = rollout.sampler_log_probs;
  return rollout;
}

std::vector<std::vector<std::vector<int32_t>>> Numbers(
    const std::vector<std::vector<RolloutRow>>& parts) {
  std::vector<std::vector<std::vector<int32_t>>> numbers;
  for (const auto& rows : parts) {
    auto& of_part = numbers.emplace_back();
    for (const RolloutRow& row : rows) {
      auto& of_row = of_part.emplace_back();
      for (const Rollout* rollout : row) of_row.push_back(rollout->ids[0] / 100);
    }
  }
  return numbers;
}

TEST(SplitRowsTest, OneRolloutARow) {
  std::vector<Rollout> rollouts = {Make(1, 2, 2), Make(2, 2, 6), Make(3, 2, 1), Make(4, 2, 2)};
  rollouts[2].is_kept = false;
  EXPECT_THAT(
      Numbers(SplitRows(rollouts, {.num_rows = 2, .num_tokens = 8})),
      ElementsAre(ElementsAre(ElementsAre(1), ElementsAre(2)), ElementsAre(ElementsAre(4))));
  for (Rollout& rollout : rollouts) rollout.is_kept = false;
  EXPECT_THAT(Numbers(SplitRows(rollouts, {.num_rows = 2, .num_tokens = 8})),
              ElementsAre(ElementsAre()));
}

TEST(SplitRowsTest, ThoseThatFitShareARow) {
  std::vector<Rollout> rollouts = {Make(1, 2, 2), Make(2, 2, 6), Make(3, 2, 1), Make(4, 2, 2),
                                   Make(5, 1, 0)};
  RowShape shape = {.num_rows = 2, .num_tokens = 8, .max_segments = 3};
  // Of 8, 4 + 4 and 3 + 1 tokens.
  EXPECT_THAT(
      Numbers(SplitRows(rollouts, shape)),
      ElementsAre(ElementsAre(ElementsAre(2), ElementsAre(1, 4)), ElementsAre(ElementsAre(3, 5))));
  // A row that is full of rollouts takes no more, whatever room it has.
  shape = {.num_rows = 4, .num_tokens = 40, .max_segments = 2};
  EXPECT_THAT(Numbers(SplitRows(rollouts, shape)),
              ElementsAre(ElementsAre(ElementsAre(2, 1), ElementsAre(4, 3), ElementsAre(5))));
}

TEST(MakeMicroBatchTest, PackedRowsHoldWhatTheirRolloutsDo) {
  for (const bool pad_first : {false, true}) {
    const std::vector<Rollout> rollouts = {Make(1, 2, 3), Make(2, 1, 2), Make(3, 4, 1)};
    const std::vector<RolloutRow> rows = {{&rollouts[1], &rollouts[0]}, {&rollouts[2]}};
    const RowShape shape = {
        .num_rows = 3, .num_tokens = 9, .pad_first = pad_first, .max_segments = 3};
    const auto batch = MakeMicroBatch(rows, shape);
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_THAT(batch->extras.at("advantages").as<float>(), ElementsAre(2, 1, 0, 3, 0, 0, 0, 0, 0));
    EXPECT_EQ(batch->extras.at("advantages").dims(), (Dims{3, 3}));
    EXPECT_EQ(batch->num_tokens, 3 + 5 + 5);
    EXPECT_EQ(batch->num_loss_tokens, 2 + 3 + 1);
    EXPECT_FALSE(batch->extras.contains("old_logprobs"));
    // Where a token is learned, its log-prob is its rollout's.
    for (size_t i = 0; i < 27; ++i) {
      const float expected = batch->extras.at("ref_logprobs").as<float>()[i];
      if (batch->loss_mask.as<float>()[i] == 0) {
        EXPECT_EQ(expected, 0);
        continue;
      }
      const int32_t target = batch->targets.as<int32_t>()[i];
      const Rollout& rollout = rollouts[static_cast<size_t>(target / 100 - 1)];
      const auto token = static_cast<size_t>(target % 100 - rollout.prompt_tokens);
      EXPECT_EQ(expected, rollout.ref_log_probs[token]) << i;
      EXPECT_EQ(batch->tokens.as<int32_t>()[i], target - 1);
      EXPECT_EQ(batch->positions.as<int32_t>()[i], target % 100 - 1);
    }
    EXPECT_EQ(batch->segment_ids.as<int32_t>()[pad_first ? 1 : 0], 1);
  }
}

TEST(MakeMicroBatchTest, WhatDoesNotFitIsRefused) {
  const Rollout rollout = Make(1, 2, 3);
  const RowShape shape = {.num_rows = 1, .num_tokens = 9, .max_segments = 2};
  const auto error = [&](const std::vector<RolloutRow>& rows) {
    return std::string(MakeMicroBatch(rows, shape).status().message());
  };
  EXPECT_THAT(error({{&rollout}, {&rollout}}), HasSubstr("2 rows for a micro-batch of 1"));
  EXPECT_THAT(error({{&rollout, &rollout, &rollout}}), HasSubstr("3 rollouts for a row"));
  EXPECT_THAT(error({{&rollout, &rollout}}), HasSubstr("a row of 9 tokens cannot hold 10"));
}

}  // namespace
}  // namespace mw::rl
