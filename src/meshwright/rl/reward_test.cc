#include "meshwright/rl/reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace mw::rl {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RewardContext Context(const train::RewardOptions& options = {}) {
  return {.options = options, .max_new_tokens = 100, .note = nullptr};
}

// The one reward of a completion of a row; NaN for an error.
double Of(const std::string& name, const ordered_json& row, const std::string& completion,
          const train::RewardOptions& options = {}, int64_t num_tokens = 1) {
  auto reward = MakeReward(name, Context(options));
  EXPECT_TRUE(reward.ok()) << reward.status();
  const RewardInput input = {
      .row_id = "r", .completion = completion, .row = &row, .num_tokens = num_tokens};
  const auto scores = (*reward)->Score({&input, 1}, nullptr);
  EXPECT_TRUE(scores.ok()) << scores.status();
  return scores.ok() ? scores->at(0) : std::nan("");
}

std::string Error(const std::vector<std::string>& texts, const train::RewardOptions& options = {}) {
  return std::string(RewardSum::Create(texts, Context(options)).status().message());
}

std::optional<double> Last(std::string_view text) {
  double value = 0;
  return LastNumber(text, &value) ? std::optional<double>(value) : std::nullopt;
}

TEST(RewardTest, ExactComparesTrimmedText) {
  EXPECT_EQ(Of("exact", {{"answer", "Paris"}}, " Paris\n"), 1);
  EXPECT_EQ(Of("exact", {{"answer", "Paris"}}, "paris"), 0);
  EXPECT_EQ(Of("exact", {{"answer", "Paris"}}, "Paris."), 0);
  EXPECT_EQ(Of("exact", {{"answer", 7}}, "7"), 1);
  EXPECT_EQ(Of("exact", {{"answer", ""}}, "  "), 1);
}

TEST(RewardTest, LastNumberOfAText) {
  EXPECT_EQ(Last("no number"), std::nullopt);
  EXPECT_EQ(Last(""), std::nullopt);
  EXPECT_EQ(Last("3 and 4."), 4);
  EXPECT_EQ(Last("It costs $1,234.50 today"), 1234.5);
  EXPECT_EQ(Last("1,23"), 23) << "commas part thousands only";
  EXPECT_EQ(Last("x = -3"), -3);
  EXPECT_EQ(Last("\u22125"), -5) << "a minus sign of text processors";
  EXPECT_EQ(Last("10-3"), 3) << "a difference is no sign";
  EXPECT_EQ(Last("(2)-3"), 3);
  EXPECT_EQ(Last("+8"), 8);
  EXPECT_EQ(Last("about .5"), 0.5);
  EXPECT_EQ(Last("6.02e23"), 6.02e23);
  EXPECT_EQ(Last("1e999 is too much after 2"), 2);
  EXPECT_EQ(Last("so the answer is 42.\n#### 42"), 42);
}

TEST(RewardTest, NumericTakesTheLastNumber) {
  EXPECT_EQ(Of("numeric", {{"answer", 12}}, "5 + 7 = 12."), 1);
  EXPECT_EQ(Of("numeric", {{"answer", 12}}, "12 = 5 + 7"), 0);
  EXPECT_EQ(Of("numeric", {{"answer", "7 x 6\n#### 42"}}, "It is 42"), 1);
  EXPECT_EQ(Of("numeric", {{"answer", 12}}, "twelve"), 0);
  EXPECT_EQ(Of("numeric", {{"answer", 0.333}}, "0.3"), 0);
  train::RewardOptions wide;
  wide.tolerance = 0.1;
  EXPECT_EQ(Of("numeric", {{"answer", 0.333}}, "0.3", wide), 1);
}

TEST(RewardTest, RegexLooksForThePattern) {
  train::RewardOptions options;
  options.pattern = "(?i)yes";
  EXPECT_EQ(Of("regex", ordered_json::object(), "Oh YES", options), 1);
  EXPECT_EQ(Of("regex", ordered_json::object(), "no", options), 0);
  // The last match's group is the answer's text.
  options.pattern = "<answer>(.*?)</answer>";
  const ordered_json row = {{"answer", "4"}};
  EXPECT_EQ(Of("regex", row, "<answer>3</answer> no, <answer> 4\n</answer>", options), 1);
  EXPECT_EQ(Of("regex", row, "<answer>4</answer> no, <answer>3</answer>", options), 0);
  EXPECT_EQ(Of("regex", row, "4", options), 0);
  // Empty matches end.
  options.pattern = "(x*)";
  EXPECT_EQ(Of("regex", {{"answer", ""}}, "aaxa", options), 1);
}

TEST(RewardTest, FormatMatchesAllOfIt) {
  train::RewardOptions options;
  options.format = "<think>.*</think>\\s*<answer>[^<]*</answer>";
  const ordered_json row = ordered_json::object();
  EXPECT_EQ(Of("format", row, "<think>a\nb</think>\n<answer>4</answer>", options), 1);
  EXPECT_EQ(Of("format", row, "<think>a</think><answer>4</answer> and", options), 0);
  EXPECT_EQ(Of("format", row, "<answer>4</answer>", options), 0);
}

// Backtracking would take 2^n steps.
TEST(RewardTest, PatternsTakeLinearTime) {
  train::RewardOptions options;
  options.format = "(a*)*b";
  EXPECT_EQ(Of("format", ordered_json::object(), std::string(100000, 'a'), options), 0);
}

// DAPO's equation 13 with L = 100 and a buffer of 20.
TEST(RewardTest, LengthFallsInTheBuffer) {
  train::RewardOptions options;
  options.overlong_buffer_tokens = 20;
  const ordered_json row = ordered_json::object();
  for (const auto& [tokens, reward] : std::vector<std::pair<int64_t, double>>{
           {1, 0}, {80, 0}, {81, -0.05}, {90, -0.5}, {99, -0.95}, {100, -1}}) {
    EXPECT_DOUBLE_EQ(Of("length", row, "", options, tokens), reward) << tokens;
  }
}

TEST(RewardTest, TheAnswersFieldIsASetting) {
  train::RewardOptions options;
  options.answer = "gold";
  EXPECT_EQ(Of("exact", {{"answer", "a"}, {"gold", "b"}}, "b", options), 1);
  const auto sum = *RewardSum::Create({"exact"}, Context(options));
  EXPECT_THAT(std::string(sum.CheckRow({{"answer", "a"}}).message()), HasSubstr("no `gold`"));
  EXPECT_THAT(std::string(sum.CheckRow({{"gold", nullptr}}).message()),
              HasSubstr("neither text nor a number"));
  const auto numeric = *RewardSum::Create({"numeric"}, Context());
  EXPECT_THAT(std::string(numeric.CheckRow({{"answer", "none"}}).message()),
              HasSubstr("no number in `answer`"));
  EXPECT_TRUE(numeric.CheckRow({{"answer", "#### 5"}}).ok());
}

TEST(RewardTest, WhatIsNoRewardIsRefused) {
  train::RewardOptions options;
  EXPECT_THAT(Error({}), HasSubstr("there is no reward"));
  EXPECT_THAT(Error({"numerc"}), HasSubstr("the nearest is \"numeric\""));
  EXPECT_THAT(Error({""}), HasSubstr("is empty"));
  EXPECT_THAT(Error({"regex"}), HasSubstr("give it as reward.pattern"));
  EXPECT_THAT(Error({"format"}), HasSubstr("give it as reward.format"));
  EXPECT_THAT(Error({"length"}), HasSubstr("reward.overlong_buffer_tokens"));
  EXPECT_THAT(Error({"exact", "exact"}), HasSubstr("given twice"));
  options.pattern = "(";
  EXPECT_THAT(Error({"regex"}, options), HasSubstr("no pattern of RE2"));
  // A setting that no reward reads.
  options.pattern = "a";
  EXPECT_THAT(Error({"exact"}, options), HasSubstr("reward.pattern is of the reward regex"));
}

TEST(RewardSumTest, Weighs) {
  train::RewardOptions options;
  options.overlong_buffer_tokens = 50;
  options.weights = "2,0.5";
  auto sum = *RewardSum::Create({"exact", "length"}, Context(options));
  EXPECT_THAT(sum.names(), ElementsAre("exact", "length"));
  const ordered_json row = {{"answer", "a"}};
  const RewardInput inputs[] = {{.row_id = "r", .completion = "a", .row = &row, .num_tokens = 75},
                                {.row_id = "r", .completion = "b", .row = &row, .num_tokens = 100}};
  const auto scores = *sum.Score(inputs);
  EXPECT_THAT(scores.totals, ElementsAre(2 - 0.25, -0.5));
  EXPECT_THAT(scores.parts, ElementsAre(ElementsAre(1, -0.5), ElementsAre(0, -1)));
  for (const char* weights : {"1", "1,2,3", "1,x", "1,inf", "1,"}) {
    options.weights = weights;
    EXPECT_THAT(Error({"exact", "length"}, options), HasSubstr("reward.weights")) << weights;
  }
  options.weights = "1";
  EXPECT_THAT(Error({"exact", "length"}, options), HasSubstr("1 number for 2 rewards"));
  train::RewardOptions one;
  one.weights = "1,";
  EXPECT_THAT(Error({"exact"}, one), HasSubstr("reward.weights"));
}

}  // namespace
}  // namespace mw::rl
