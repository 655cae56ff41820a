// What a run saves, and what saving does to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "meshwright/train/checkpoint.h"
#include "meshwright/train/file_size_limit_for_test.h"
#include "meshwright/train/sft_run_for_test.h"
#include "meshwright/train/tensorboard_events_for_test.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SftCheckpointTest : public SftTest {
 protected:
  std::vector<nlohmann::json> Records() const {
    std::vector<nlohmann::json> records;
    std::istringstream lines(ReadText(options_.out + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      records.push_back(nlohmann::json::parse(line));
    }
    return records;
  }
};

// (update, micro-batch, the rows' places in the data).
using Rows = std::tuple<int64_t, int64_t, std::vector<std::vector<int64_t>>>;

// What TensorBoard shows of a run: by step, the values of each event that has some.
std::multimap<int64_t, std::map<std::string, float>> Shown(const std::string& out) {
  std::multimap<int64_t, std::map<std::string, float>> shown;
  for (const std::string& file : FilesIn(out + "/tensorboard")) {
    for (const tensorboard::Event& event : ReadEvents(file)) {
      std::map<std::string, float> values;
      for (const auto& value : event.summary().value()) {
        if (value.tag().starts_with("learning/")) values[value.tag()] = value.simple_value();
      }
      if (!values.empty()) shown.emplace(event.step(), std::move(values));
    }
  }
  return shown;
}

// Twelve steps of three micro-batches, and the same in three runs: the first ends after an update,
// the second between two micro-batches.
TEST_F(SftCheckpointTest, TwelveStepsInThreeRunsAreTwelveStepsInOne) {
  std::string rows;
  for (int i = 0; i < 13; ++i) {
    std::string ids = "3";
    for (int j = 0; j < 2 + i % 5; ++j) ids += ", " + std::to_string(4 + 7 * i + j);
    rows += "{\"input_ids\": [" + ids + "]}\n";
  }
  options_.data = {dir_ + "/rows.jsonl"};
  ASSERT_TRUE(io::WriteFile(options_.data[0], rows).ok());
  config_.gradient_accumulation_steps = 3;
  config_.data.shuffle = true;
  config_.checkpoint_period = 2;
  std::vector<Rows> seen;
  // Ends after the micro-batch `stop_at`.
  const auto run = [&](const std::string& out, bool resume, std::pair<int64_t, int64_t> stop_at) {
    options_.out = dir_ + "/" + out;
    stop_ = false;
    options_.before_micro_batch = [&](int64_t step, int64_t micro_batch, const data::Batch& batch) {
      seen.emplace_back(step, micro_batch, batch.example_indices);
      stop_ = std::pair(step, micro_batch) == stop_at;
    };
    const auto result = Run(12, resume);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : SftResult{};
  };
  EXPECT_EQ(run("straight", false, {-1, -1}).last_step, 12);
  const std::vector<Rows> straight = std::exchange(seen, {});
  ASSERT_EQ(straight.size(), 36u);
  const SftResult first = run("restarted", false, {3, 2});
  EXPECT_EQ(first.last_step, 4);
  EXPECT_EQ(first.num_micro_batches, 0);
  const SftResult second = run("restarted", true, {7, 1});
  EXPECT_EQ(second.first_step, 4);
  EXPECT_EQ(second.last_step, 7);
  EXPECT_EQ(second.num_micro_batches, 2);
  const SftResult third = run("restarted", true, {-1, -1});
  EXPECT_EQ(third.first_step, 7);
  EXPECT_EQ(third.last_step, 12);

  EXPECT_EQ(seen, straight);
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "engine_state.json"}) {
    EXPECT_EQ(ReadText(dir_ + "/straight/checkpoints/12/" + file),
              ReadText(dir_ + "/restarted/checkpoints/12/" + file))
        << file;
  }
  // Two steps of training are seen.
  EXPECT_NE(ReadText(dir_ + "/straight/checkpoints/10/model.safetensors"),
            ReadText(dir_ + "/restarted/checkpoints/12/model.safetensors"));
  const auto logged = [&](const std::string& out) {
    options_.out = dir_ + "/" + out;
    std::vector<nlohmann::json> kept;
    for (const nlohmann::json& record : Records()) {
      nlohmann::json& learning = kept.emplace_back();
      for (const auto& [key, value] : record.items()) {
        if (key == "step" || key.starts_with("learning/")) learning[key] = value;
      }
    }
    return kept;
  };
  EXPECT_EQ(logged("straight").size(), 12u);
  EXPECT_EQ(logged("restarted"), logged("straight"));
  // Each step once, over the files of three processes.
  const auto shown = Shown(dir_ + "/restarted");
  EXPECT_EQ(shown.size(), 12u);
  for (int64_t step = 1; step <= 12; ++step) EXPECT_EQ(shown.count(step), 1u) << step;
  EXPECT_EQ(shown, Shown(dir_ + "/straight"));
  EXPECT_EQ(FilesIn(dir_ + "/restarted/tensorboard").size(), 3u);
}

TEST_F(SftCheckpointTest, BothWaysOfSavingWriteTheSame) {
  config_.checkpoint_period = 1;
  config_.max_num_checkpoints_to_keep = 0;
  for (const bool async : {true, false}) {
    config_.async_checkpointing = async;
    options_.out = dir_ + (async ? "/async" : "/blocking");
    const auto result = Run(4, false);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->checkpoint, options_.out + "/checkpoints/4");
    const std::vector<nlohmann::json> records = Records();
    EXPECT_FALSE(records[0].contains("checkpoint/blocked_seconds"));
    for (size_t i = 1; i < 4; ++i) {
      EXPECT_TRUE(records[i].contains("checkpoint/blocked_seconds")) << i;
      // Whether an asynchronous one has ended by then is a matter of time.
      if (!async) {
        EXPECT_TRUE(records[i].contains("checkpoint/save_seconds")) << i;
      }
    }
  }
  for (const char* step : {"1", "2", "3", "4"}) {
    for (const std::string& path : FilesIn(dir_ + "/async/checkpoints/" + step)) {
      const std::string file = fs::path(path).filename().string();
      // They hold the setting, which is another.
      if (file == "engine_state.json" || file == "manifest.json") continue;
      EXPECT_EQ(ReadText(path), ReadText(dir_ + "/blocking/checkpoints/" + step + "/" + file))
          << step << "/" << file;
    }
  }
  EXPECT_NE(ReadText(dir_ + "/async/checkpoints/3/model.safetensors"),
            ReadText(dir_ + "/blocking/checkpoints/4/model.safetensors"));
}

TEST_F(SftCheckpointTest, ASaveThatFailsFailsTheRunAndLosesNothing) {
  config_.checkpoint_period = 2;
  for (const bool async : {true, false}) {
    config_.async_checkpointing = async;
    options_.out = dir_ + (async ? "/async" : "/blocking");
    const std::string in_the_way = options_.out + "/checkpoints/4";
    options_.before_micro_batch = [&](int64_t step, int64_t, const data::Batch&) {
      if (step != 3) return;
      // The save of step 2 may not have made it yet.
      EXPECT_TRUE(io::MakeDirectories(options_.out + "/checkpoints").ok());
      EXPECT_TRUE(io::WriteFile(in_the_way, "").ok());
    };
    const absl::Status failed = Run(6, false).status();
    // No code of bad input: what was asked for was right.
    EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(failed.message()),
                AllOf(HasSubstr("saving checkpoint 4 failed: "), HasSubstr(in_the_way),
                      HasSubstr("; --resume continues checkpoint 2")));
    EXPECT_TRUE(LoadCheckpoint(options_.out + "/checkpoints/2").ok());
    options_.before_micro_batch = nullptr;
    fs::remove(in_the_way);
    const auto resumed = Run(6, true);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_EQ(resumed->first_step, 2);
    EXPECT_EQ(resumed->last_step, 6);
  }
}

TEST_F(SftCheckpointTest, ALogThatCannotBeWrittenFailsTheRunOnceItHasSaved) {
  ASSERT_TRUE(Run(6, false).ok());
  const std::string undisturbed = ReadText(options_.out + "/checkpoints/6/model.safetensors");
  options_.out = dir_ + "/full";
  std::optional<FileSizeLimit> limit;
  options_.before_micro_batch = [&](int64_t step, int64_t, const data::Batch&) {
    if (step == 2) limit.emplace(fs::file_size(options_.out + "/metrics.jsonl") + 20);
    if (step == 5) limit.reset();
  };
  const absl::Status failed = Run(6, false).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(
      std::string(failed.message()),
      AllOf(HasSubstr("the log of the run is not whole: cannot write " + options_.out + "/"),
            HasSubstr("/metrics.jsonl: File too large"), HasSubstr("/tensorboard/events.out"),
            HasSubstr("; the weights are saved as " + options_.out + "/checkpoints/6")));
  EXPECT_THAT(notes_, HasSubstr("metrics are no longer written: cannot write " + options_.out));
  EXPECT_EQ(ReadText(options_.out + "/checkpoints/6/model.safetensors"), undisturbed);
  // What half of a line is left is no record.
  options_.before_micro_batch = nullptr;
  const auto resumed = Run(7, true);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(Records().back()["step"], 7);
  EXPECT_LT(Records().size(), 6u);
}

// Fails from its second Flush on, which comes before the second save.
class FailingSink : public MetricSink {
 public:
  absl::Status Write(const MetricRecord&) override { return absl::OkStatus(); }
  absl::Status Flush() override {
    return ++num_flushes_ < 2 ? absl::OkStatus() : absl::ResourceExhaustedError("the log is full");
  }

 private:
  int num_flushes_ = 0;
};

TEST_F(SftCheckpointTest, TrainingThatFailsWaitsForTheSaveUnderWay) {
  config_.checkpoint_period = 2;
  options_.make_console_sink = [](int64_t) { return std::make_unique<FailingSink>(); };
  const absl::Status failed = Run(6, false).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("the log is full"));
  std::vector<std::string> names;
  for (const std::string& path : FilesIn(options_.out + "/checkpoints")) {
    names.push_back(fs::path(path).filename().string());
  }
  EXPECT_THAT(names, ::testing::ElementsAre("2", "latest"));
  EXPECT_TRUE(LoadCheckpoint(options_.out + "/checkpoints/2").ok());
}

// What killed runs leave is told, and the newest whole checkpoint continued.
TEST_F(SftCheckpointTest, HalfACheckpointIsPassedOverWithAMessage) {
  config_.checkpoint_period = 1;
  ASSERT_TRUE(Run(3, false).ok());
  const std::string dir = options_.out + "/checkpoints/";
  fs::rename(dir + "3", dir + "4.tmp-1");  // of a process that is none of ours, and lives
  fs::remove(dir + "latest");
  fs::resize_file(dir + "2/model.safetensors", 1000);
  fs::remove(dir + "2/manifest.json");
  const auto resumed = Run(3, true);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->first_step, 1);
  EXPECT_THAT(notes_, AllOf(HasSubstr(dir + "2 was passed over: it has no manifest.json"),
                            HasSubstr(dir + "4.tmp-1 was passed over: a save that was not "
                                            "finished")));
  for (const char* step : {"2", "3", "latest"}) {
    EXPECT_TRUE(LoadCheckpoint(dir + step).ok()) << step;
  }
}

// What is saved already is not saved again.
TEST_F(SftCheckpointTest, AStopRightAfterASaveKeepsThatOne) {
  config_.checkpoint_period = 2;
  config_.eval_interval = 2;
  config_.async_checkpointing = false;
  options_.eval_data = options_.data[0];
  struct stat saved = {};
  const std::string manifest = options_.out + "/checkpoints/2/manifest.json";
  options_.on_eval = [&](const MetricRecord& record) {
    if (record.step != 2) return;
    EXPECT_EQ(::stat(manifest.c_str(), &saved), 0);
    stop_ = true;
  };
  const auto stopped = Run(6, false);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_TRUE(stopped->stopped);
  EXPECT_EQ(stopped->last_step, 2);
  EXPECT_EQ(stopped->checkpoint, options_.out + "/checkpoints/2");
  struct stat now = {};
  ASSERT_EQ(::stat(manifest.c_str(), &now), 0);
  EXPECT_EQ(now.st_ino, saved.st_ino);
  EXPECT_EQ(now.st_mtim.tv_nsec, saved.st_mtim.tv_nsec);
}

}  // namespace
}  // namespace mw::train
