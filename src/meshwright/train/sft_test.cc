#include "meshwright/train/sft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/io/file_util.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/train/checkpoint.h"
#include "meshwright/train/test_cache.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Tells of each record's step.
class CallingSink : public MetricSink {
 public:
  explicit CallingSink(std::function<void(int64_t)> call) : call_(std::move(call)) {}
  absl::Status Write(const MetricRecord& record) override {
    call_(record.step);
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

 private:
  std::function<void(int64_t)> call_;
};

class SftTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "sft_XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    auto client = runtime::Client::Create(runtime::DeviceSpec{});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *client;
    std::string rows;
    for (int i = 0; i < 6; ++i) rows += "{\"input_ids\": [3, 4, 5, 6, 7, 8, 9]}\n";
    ASSERT_TRUE(io::WriteFile(dir_ + "/data.jsonl", rows).ok());
    options_.model = "random:tiny-llama:1";
    options_.data = {dir_ + "/data.jsonl"};
    options_.out = dir_ + "/run";
    options_.note = [this](std::string_view sentence) { notes_ += std::string(sentence) + "\n"; };
    config_.data.batch_size = 2;
    config_.data.max_target_length = 16;
    config_.steps = 20;
    ASSERT_TRUE(config_.Finish().ok());
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string dir_;
  std::string notes_;
  std::shared_ptr<runtime::Client> client_;
  TrainConfig config_;
  SftOptions options_;
  std::atomic<bool> stop_{false};
};

TEST_F(SftTest, StopFinishesTheStepAndSaves) {
  std::vector<int64_t> steps;
  options_.make_console_sink = [&](int64_t) {
    return std::make_unique<CallingSink>([&](int64_t step) {
      steps.push_back(step);
      if (step == 3) stop_ = true;
    });
  };
  const auto stopped = RunSft(client_, SharedTestCache(), config_, options_, stop_);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_TRUE(stopped->stopped);
  EXPECT_GE(stopped->last_step, 3);
  EXPECT_LT(stopped->last_step, 20);
  const auto found = FindLatestCheckpoint(options_.out);
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->step, stopped->last_step);

  stop_ = false;
  options_.resume = true;
  const auto resumed = RunSft(client_, SharedTestCache(), config_, options_, stop_);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_FALSE(resumed->stopped);
  EXPECT_EQ(resumed->first_step, stopped->last_step);
  EXPECT_EQ(resumed->last_step, 20);
  // Every step id once.
  std::vector<int64_t> expected(20);
  for (size_t i = 0; i < 20; ++i) expected[i] = static_cast<int64_t>(i) + 1;
  EXPECT_EQ(steps, expected);
}

// 12 steps, and the same in three runs through the checkpoints on disk.
TEST_F(SftTest, StoppedTwiceEndsAsTheStraightRun) {
  config_.steps = 12;
  config_.gradient_accumulation_steps = 2;
  ASSERT_TRUE(config_.Finish().ok());
  const auto run = [&](const std::string& out, int64_t stop_at) {
    options_.out = dir_ + "/" + out;
    stop_ = false;
    options_.make_console_sink = [this, stop_at](int64_t) {
      return std::make_unique<CallingSink>([this, stop_at](int64_t step) {
        if (step == stop_at) stop_ = true;
      });
    };
    const auto result = RunSft(client_, SharedTestCache(), config_, options_, stop_);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : SftResult{};
  };
  EXPECT_EQ(run("straight", -1).last_step, 12);
  const SftResult first = run("stopped", 3);
  EXPECT_TRUE(first.stopped);
  options_.resume = true;
  const SftResult second = run("stopped", 7);
  EXPECT_TRUE(second.stopped);
  EXPECT_EQ(second.first_step, first.last_step);
  const SftResult third = run("stopped", -1);
  EXPECT_GT(third.first_step, second.first_step);
  EXPECT_EQ(third.last_step, 12);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const auto straight = io::ReadFile(dir_ + "/straight/checkpoints/12/" + file);
    const auto stopped = io::ReadFile(dir_ + "/stopped/checkpoints/12/" + file);
    ASSERT_TRUE(straight.ok() && stopped.ok()) << file;
    EXPECT_EQ(*straight, *stopped) << file;
  }
}

TEST_F(SftTest, StopBeforeTheFirstStepLeavesNothing) {
  stop_ = true;
  const auto result = RunSft(client_, SharedTestCache(), config_, options_, stop_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->stopped);
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(SftTest, AnotherModelIsNoContinuation) {
  config_.steps = 1;
  ASSERT_TRUE(config_.Finish().ok());
  ASSERT_TRUE(RunSft(client_, SharedTestCache(), config_, options_, stop_).ok());
  options_.resume = true;
  options_.model = "random:tiny-qwen3";
  config_.steps = 2;
  ASSERT_TRUE(config_.Finish().ok());
  const auto result = RunSft(client_, SharedTestCache(), config_, options_, stop_);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("qwen3"));
}

TEST_F(SftTest, CheckWritableLeavesNoTrace) {
  EXPECT_TRUE(CheckWritable(dir_ + "/a/b/c").ok());
  EXPECT_FALSE(fs::exists(dir_ + "/a"));
  EXPECT_TRUE(CheckWritable(dir_).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
  EXPECT_FALSE(CheckWritable("/proc/nothing/here").ok());
  EXPECT_FALSE(CheckWritable(dir_ + "/data.jsonl/below").ok());
}

TEST_F(SftTest, FailuresOfARunAreNotBadInput) {
  EXPECT_EQ(RunFailure(absl::InvalidArgumentError("x")), absl::InternalError("x"));
  EXPECT_EQ(RunFailure(absl::ResourceExhaustedError("x")), absl::ResourceExhaustedError("x"));
  EXPECT_TRUE(RunFailure(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace mw::train
