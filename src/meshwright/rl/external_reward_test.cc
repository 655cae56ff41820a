#include "meshwright/rl/external_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace mw::rl {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ExternalRewardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    context_.note = [this](std::string_view sentence) { notes_ += sentence; };
    context_.options.timeout_s = 30;
    for (int i = 0; i < 3; ++i) {
      rows_.push_back({{"answer", i}, {"id", "own"}});
    }
    for (int i = 0; i < 3; ++i) {
      inputs_.push_back({.row_id = "row-" + std::to_string(i),
                         .prompt = "p",
                         .completion = std::string(static_cast<size_t>(i), 'x'),
                         .row = &rows_[static_cast<size_t>(i)]});
    }
  }

  // A command that runs a Python script; its texts have no quotes of the shell.
  static std::string Python(const std::string& body) {
    return "python3 -c \"\nimport json, sys, os, time, signal\ndef say(i, r): "
           "print(json.dumps({'id': i, 'reward': r}), flush=True)\n" +
           body + "\"";
  }
  static std::string EachLine(const std::string& body) {
    return Python("for line in sys.stdin:\n  s = json.loads(line)\n  " + body);
  }
  std::string Error(const std::string& command) {
    ExternalReward reward(command, context_);
    const auto scores = reward.Score(inputs_, nullptr);
    EXPECT_FALSE(scores.ok());
    // No code that stands for bad input.
    EXPECT_EQ(scores.status().code(), absl::StatusCode::kAborted) << scores.status();
    return std::string(scores.status().message());
  }

  RewardContext context_;
  std::vector<ordered_json> rows_;
  std::vector<RewardInput> inputs_;
  std::string notes_;
};

TEST_F(ExternalRewardTest, SeesEverySampleAndServesManyBatches) {
  ExternalReward reward(
      EachLine("say(s['id'], len(s['completion']) + 10 * s['answer'] + 100 * "
               "(s['prompt'] == 'p' and s['row_id'] == 'row-%d' % (s['id'] % 3)))"),
      context_);
  for (int batch = 0; batch < 3; ++batch) {
    const auto scores = reward.Score(inputs_, nullptr);
    ASSERT_TRUE(scores.ok()) << scores.status();
    EXPECT_THAT(*scores, ElementsAre(100, 111, 122));
  }
  EXPECT_EQ(notes_, "");
}

// An answer too many, which is read with those of the next batch, is none of its samples'.
TEST_F(ExternalRewardTest, ALateAnswerIsNotTheNextBatchs) {
  ExternalReward reward(EachLine("say(s['id'], 1)\n"
                                 "  if s['id'] == 2: time.sleep(0.3); say(0, 55)"),
                        context_);
  const auto first = reward.Score(inputs_, nullptr);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(*first, ElementsAre(1, 1, 1));
  const auto second = reward.Score(inputs_, nullptr);
  EXPECT_THAT(second.status().message(), HasSubstr("has an `id` that was answered already"));
  EXPECT_THAT(second.status().message(), HasSubstr("sample 3 (row row-0"));
}

TEST_F(ExternalRewardTest, AnswersComeInAnyOrder) {
  ExternalReward reward(Python("ids = [json.loads(sys.stdin.readline())['id'] for _ in range(3)]\n"
                               "for i in reversed(ids): say(i, i / 2)"),
                        context_);
  const auto scores = reward.Score(inputs_, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_THAT(*scores, ElementsAre(0, 0.5, 1));
}

// More than pipes hold, both ways.
TEST_F(ExternalRewardTest, LargeBatchesDoNotBlock) {
  ExternalReward reward(EachLine("say(s['id'], len(s['completion'])); "
                                 "print(json.dumps({'id': -1})[:0], end='')"),
                        context_);
  std::vector<RewardInput> inputs;
  for (int i = 0; i < 200; ++i) {
    inputs.push_back(inputs_[0]);
    inputs.back().completion = std::string(20000, 'y');
  }
  const auto scores = reward.Score(inputs, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_EQ(std::count(scores->begin(), scores->end(), 20000.0), 200);
}

TEST_F(ExternalRewardTest, WhatIsNoUtf8IsStillSent) {
  inputs_[0].completion = "a\xff";
  ExternalReward reward(EachLine("say(s['id'], len(s['completion']))"), context_);
  const auto scores = reward.Score(inputs_, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_THAT(*scores, ElementsAre(2, 1, 2));
}

TEST_F(ExternalRewardTest, ACrashIsOutlivedOnceABatch) {
  const std::string file = ::testing::TempDir() + "crashed_once";
  std::remove(file.c_str());
  // Crashes at sample 1 the first time.
  ExternalReward reward(
      EachLine("crash = s['id'] == 1 and not os.path.exists('" + file + "')\n  if crash: open('" +
               file + "', 'w').close(); os._exit(3)\n  say(s['id'], 1)"),
      context_);
  const auto scores = reward.Score(inputs_, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_THAT(*scores, ElementsAre(1, 1, 1));
  EXPECT_THAT(notes_, HasSubstr("ended with status 3 before it had rewarded sample 1 (row row-1"));
  EXPECT_THAT(notes_, HasSubstr("begun again"));
  std::remove(file.c_str());
}

TEST_F(ExternalRewardTest, ASecondCrashNamesTheSample) {
  const std::string error = Error(EachLine("s['id'] == 2 and os._exit(4); say(s['id'], 1)"));
  EXPECT_THAT(error, HasSubstr("ended with status 4 before it had rewarded sample 2 (row row-2, "
                               "completion 'xx')"));
}

TEST_F(ExternalRewardTest, ASignalIsTold) {
  EXPECT_THAT(Error(EachLine("os.kill(os.getpid(), signal.SIGKILL)")),
              HasSubstr("sample 0 (row row-0"));
}

TEST_F(ExternalRewardTest, AProcessThatNeverReadsIsNoTrouble) {
  // Its input is closed while more is written to it than a pipe holds.
  for (RewardInput& input : inputs_) input.completion = std::string(1 << 20, 'z');
  EXPECT_THAT(Error("exit 5"), HasSubstr("ended with status 5"));
}

TEST_F(ExternalRewardTest, ACommandThatIsNotThereIsTold) {
  EXPECT_THAT(Error("/no/such/program --flag 2>/dev/null"), HasSubstr("ended with status 127"));
}

TEST_F(ExternalRewardTest, ATimeoutNamesTheSample) {
  context_.options.timeout_s = 1;
  // With a child of its own, which ends with it.
  const std::string error = Error("echo '{\"id\": 0, \"reward\": 1}'; cat >/dev/null | cat");
  EXPECT_THAT(error, HasSubstr("gave no reward within reward.timeout_s=1 s before it had rewarded "
                               "sample 1 (row row-1"));
}

TEST_F(ExternalRewardTest, WhatIsNoAnswerIsAnErrorAtOnce) {
  for (const auto& [body, what] : std::vector<std::pair<std::string, std::string>>{
           {"print('hello', flush=True)", "is no JSON object"},
           {"print('[1, 2]', flush=True)", "is no JSON object"},
           {"print(json.dumps({'reward': 1}), flush=True)", "has no number as `id`"},
           {"say(99, 1)", "was not asked for"},
           {"say(0, 1); say(0, 1)", "was answered already"},
           {"say(s['id'], 'good')", "has no finite number as `reward`"},
           {"say(s['id'], float('nan'))", "is no JSON object"},
           {"print('x' * 3000000, end='', flush=True); time.sleep(60)", "a line that does not end"},
       }) {
    const std::string error = Error(EachLine(body));
    EXPECT_THAT(error, HasSubstr(what)) << body;
    EXPECT_THAT(error, HasSubstr("(row row-")) << body;
  }
  EXPECT_THAT(notes_, Not(HasSubstr("begun again")));
}

TEST_F(ExternalRewardTest, AStopIsHeard) {
  ExternalReward reward("cat >/dev/null", context_);
  std::atomic<bool> stop = false;
  std::thread stopper([&] { stop = true; });
  const auto scores = reward.Score(inputs_, &stop);
  stopper.join();
  EXPECT_EQ(scores.status().code(), absl::StatusCode::kCancelled);
}

// A hung command of two processes, whose program is killed.
TEST_F(ExternalRewardTest, NothingOutlivesAProgramThatIsKilled) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string to_us = ">&" + std::to_string(ends[1]);
  const pid_t program = ::fork();
  ASSERT_GE(program, 0);
  if (program == 0) {
    ExternalReward reward("echo begun " + to_us + "; sleep 300 | cat", context_);
    reward.Score(inputs_, nullptr).IgnoreError();
    ::_exit(1);
  }
  ::close(ends[1]);
  char begun[6];
  ASSERT_EQ(::read(ends[0], begun, sizeof(begun)), 6);
  ASSERT_EQ(::kill(program, SIGKILL), 0);
  ASSERT_EQ(::waitpid(program, nullptr, 0), program);
  // Its end is read once nobody has the other end of the pipe.
  pollfd end = {ends[0], POLLIN, 0};
  ASSERT_EQ(::poll(&end, 1, 60'000), 1) << "it goes on";
  EXPECT_EQ(::read(ends[0], begun, 1), 0);
  ::close(ends[0]);
}

// What a command leaves running when it ends is its own affair, and waited for by nobody.
TEST_F(ExternalRewardTest, WhatACommandLeavesRunningOutlivesIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  int go_on[2];
  ASSERT_EQ(::pipe(go_on), 0);
  {
    ExternalReward reward("(read line <&" + std::to_string(go_on[0]) + "; echo lives >&" +
                              std::to_string(ends[1]) + ") >/dev/null & " +
                              EachLine("say(s['id'], 1)"),
                          context_);
    ASSERT_TRUE(reward.Score(inputs_, nullptr).ok());
  }
  ::close(ends[1]);
  ASSERT_EQ(::write(go_on[1], "\n", 1), 1);
  char lives[6];
  EXPECT_EQ(::read(ends[0], lives, sizeof(lives)), 6);
  for (const int fd : {ends[0], go_on[0], go_on[1]}) ::close(fd);
}

// Negative control of NoSigpipe: the signal would end this test.
TEST_F(ExternalRewardTest, SigpipeIsLeftAsItWas) {
  struct sigaction before = {};
  sigaction(SIGPIPE, nullptr, &before);
  ASSERT_EQ(before.sa_handler, SIG_DFL) << "the test would prove nothing";
  for (RewardInput& input : inputs_) input.completion = std::string(1 << 20, 'z');
  EXPECT_THAT(Error("exec <&-; sleep 0.2"), HasSubstr("before it had rewarded"));
  struct sigaction after = {};
  sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(after.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace mw::rl
