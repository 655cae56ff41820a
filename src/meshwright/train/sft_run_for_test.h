// SftTest: a run of a tiny model in a folder of its own.
#ifndef MESHWRIGHT_TRAIN_SFT_RUN_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_SFT_RUN_FOR_TEST_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "meshwright/io/file_util.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/test_cache.h"

namespace mw::train {

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
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // A run of `steps` updates from the start; with `resume` its continuation.
  absl::StatusOr<SftResult> Run(int64_t steps, bool resume) {
    config_.steps = steps;
    EXPECT_TRUE(config_.Finish().ok());
    options_.resume = resume;
    return RunSft(client_, SharedTestCache(), config_, options_, stop_);
  }
  void Damage(const std::string& path) {
    std::string bytes = *io::ReadFile(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::filesystem::remove(path);
    ASSERT_TRUE(io::WriteFile(path, bytes).ok());
  }

  std::string dir_;
  std::string notes_;
  std::shared_ptr<runtime::Client> client_;
  TrainConfig config_;
  SftOptions options_;
  std::atomic<bool> stop_{false};
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SFT_RUN_FOR_TEST_H_
