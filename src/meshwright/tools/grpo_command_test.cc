// `meshwright grpo` on the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/tools/command_line_for_test.h"

namespace mw::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class GrpoCommandTest : public CommandLineTest {
 protected:
  void SetUp() override {
    CommandLineTest::SetUp();
    std::string rows;
    for (int i = 0; i < 4; ++i) {
      rows += json{{"id", i}, {"prompt", {3 + i, 4, 5}}, {"answer", i}}.dump() + "\n";
    }
    prompts_ = Write("prompts.jsonl", rows);
  }

  std::vector<std::string> Grpo(const std::vector<std::string>& more,
                                const std::string& data = "") const {
    std::vector<std::string> args = {"grpo",
                                     "--model",
                                     "random:tiny-llama:3",
                                     "--data",
                                     data.empty() ? prompts_ : data,
                                     "--out",
                                     Path("run"),
                                     "--json",
                                     "steps=3",
                                     "prompts_per_step=2",
                                     "num_generations=4",
                                     "batch_size=4",
                                     "max_new_tokens=3",
                                     "learning_rate=1e-2"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  std::string prompts_;
};

TEST_F(GrpoCommandTest, LearnsMeasuresAndWritesItsFiles) {
  const Outcome outcome = Invoke(Grpo({"--reward", "regex", "reward.pattern=^[0-9]{2}\\b",
                                       "--eval-data", prompts_, "eval_interval=2"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<json> records;
  for (const std::string& line : Lines(outcome.out)) records.push_back(json::parse(line));
  ASSERT_EQ(records.size(), 3u + 3);
  EXPECT_TRUE(records[0].contains("eval/reward_stderr"));
  EXPECT_TRUE(records[1].contains("rl/reward_mean"));
  for (const char* file : {"config.yaml", "metrics.jsonl", "samples.jsonl", "tensorboard",
                           "checkpoints/3/config.json"}) {
    EXPECT_TRUE(fs::exists(Path("run/") + file)) << file;
  }
  // Its settings are those of a config file, and there is nothing more to do.
  const Outcome again =
      Invoke(Grpo({"--reward", "regex", "--config", Path("run/config.yaml"), "--resume",
                   "reward.pattern=^[0-9]{2}\\b", "--eval-data", prompts_}));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("nothing more to do"));
  // For people.
  fs::remove_all(Path("run"));
  std::vector<std::string> plain = Grpo({"--reward", "regex", "reward.pattern=^[0-9]{2}\\b"});
  std::erase(plain, "--json");
  EXPECT_THAT(Invoke(plain).out, HasSubstr("step 1/3  reward 0."));
}

TEST_F(GrpoCommandTest, BadInput) {
  ExpectBadInput(Grpo({"--reward", "numerc"}), "the nearest is \"numeric\"");
  ExpectBadInput(Grpo({"--reward", "regex"}), "reward.pattern");
  ExpectBadInput(Grpo({"--reward", "regex", "reward.pattern=("}), "no pattern of RE2");
  ExpectBadInput(Grpo({}), "--reward");
  ExpectBadInput(Grpo({"--reward", "exact", "loss.name=dpo"}), "learned with `meshwright sft`");
  ExpectBadInput(Grpo({"--reward", "exact", "num_generations=x"}), "num_generations takes an");
  ExpectBadInput(Grpo({"--reward", "exact", "num_generation=4"}), "num_generations");
  ExpectBadInput(Grpo({"--reward", "exact", "reward.weights=1,2"}), "2 numbers for 1 reward");
  ExpectBadInput(Grpo({"--reward", "exact", "--restart-update"}), "give --resume too");
  ExpectBadInput(Grpo({"--reward", "exact", "--stop", "x"}), "leave out --stop");
  ExpectBadInput(Grpo({"--reward", "exact", "--resume"}), "no checkpoint");
  ExpectBadInput(Grpo({"--reward", "exact"}, Path("none.jsonl")), "none.jsonl");
  const auto data = [&](const std::string& text) { return Write("bad.jsonl", text); };
  ExpectBadInput(Grpo({"--reward", "exact"}, data("")), "has no rows");
  ExpectBadInput(Grpo({"--reward", "exact"}, data("{\"prompt\": [3, \n")), "bad.jsonl:1");
  ExpectBadInput(Grpo({"--reward", "exact"}, data("{\"prompt\": []}\n")), "bad.jsonl:1");
  ExpectBadInput(Grpo({"--reward", "exact"}, data("{\"prompt\": 5}\n")), "bad.jsonl:1");
  ExpectBadInput(Grpo({"--reward", "exact"}, data("{\"text\": \"x\"}\n")), "`prompt`");
  ExpectBadInput(Grpo({"--reward", "exact"}, data("{\"prompt\": [3, \"x\"]}\n")), "bad.jsonl:1");
  ExpectBadInput(Grpo({"--reward", "exact"}, data("{\"prompt\": [3, 4]}\n")), "no `answer`");
  EXPECT_FALSE(fs::exists(Path("run")));
  // What belongs to grpo does nothing elsewhere.
  ExpectBadInput(Sft("run", {"num_generations=4"}), "belongs to loss.name=grpo");
  ExpectBadInput(Sft("run", {"loss.name=grpo"}), "use `meshwright grpo`");
}

// Chats by a template, texts that end a completion, and what a command sees of both.
TEST_F(GrpoCommandTest, RewardsSeeTextUpToAStop) {
  const std::string model = Path("model");
  ASSERT_EQ(Invoke({"convert", "--model", "random:tiny-llama", "--out", model}).status, 0);
  Write("model/tokenizer.json", LettersTokenizer());
  const std::string chats = Write(
      "chats.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"gold\": 5}\n");
  std::vector<std::string> args = Grpo(
      {"--reward",
       "tee " + Path("seen") + " | sed -u 's/.*\"id\":\\([0-9]*\\).*/{\"id\":\\1,\"reward\":1}/'",
       "chat_template=chatml", "max_new_tokens=40", "steps=1"},
      chats);
  args[2] = model;
  // A letter comes soon among 96.
  for (char c = 'a'; c <= 'z'; ++c) {
    args.emplace_back("--stop");
    args.emplace_back(1, c);
  }
  const Outcome outcome = Invoke(args);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto seen = io::ReadFile(Path("seen"));
  ASSERT_TRUE(seen.ok());
  size_t num_stopped = 0;
  for (const std::string& line : Lines(*seen)) {
    const json sample = json::parse(line);
    EXPECT_EQ(sample["gold"], 5);
    EXPECT_THAT(sample["prompt"].get<std::string>(), HasSubstr("<|im_start|>assistant"));
    const std::string completion = sample["completion"];
    EXPECT_EQ(completion.find_first_of("abcdefghijklmnopqrstuvwxyz"), std::string::npos);
  }
  const auto samples = io::ReadFile(Path("run/samples.jsonl"));
  ASSERT_TRUE(samples.ok());
  for (const std::string& line : Lines(*samples)) {
    num_stopped += json::parse(line)["finish_reason"] == "stop" ? 1 : 0;
  }
  EXPECT_GT(num_stopped, 0u);
}

// A reward that fails is a failed run, and no bad input.
TEST_F(GrpoCommandTest, AFailedRewardHasStatusOne) {
  const Outcome outcome = Invoke(Grpo({"--reward", "exit 3"}));
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(Lines(outcome.err).back(),
              HasSubstr("error: the reward command 'exit 3' ended with status 3 before it had "
                        "rewarded sample 0 (row "));
  EXPECT_FALSE(fs::exists(Path("run")));
}

}  // namespace
}  // namespace mw::tools
