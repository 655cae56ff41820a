#include "meshwright/train/sft.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/train/checkpoint.h"
#include "meshwright/train/run_folder.h"
#include "meshwright/train/sft_run_for_test.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST_F(SftTest, AStopDispatchesNothingMoreAndSaysWhatItWaitsFor) {
  options_.make_console_sink = [&](int64_t) {
    return std::make_unique<CallingSink>([&](int64_t step) {
      if (step == 3) stop_ = true;
    });
  };
  options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch&) {
    EXPECT_FALSE(stop_.load());
  };
  const auto stopped = Run(20, false);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_THAT(notes_, HasSubstr("stopping: up to 2 dispatched computations finish first\n"));
  EXPECT_THAT(notes_, HasSubstr("saving a checkpoint to " + stopped->checkpoint + "\n"));

  // The first step is waited for in any case: then there is nothing more to await.
  options_.out = dir_ + "/first";
  options_.make_console_sink = [&](int64_t) {
    return std::make_unique<CallingSink>([&](int64_t) { stop_ = true; });
  };
  stop_ = false;
  notes_.clear();
  const auto first = Run(20, false);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->last_step, 1);
  EXPECT_THAT(notes_, Not(HasSubstr("stopping: up to")));
}

// The signal came when nothing but the measurement was left.
TEST_F(SftTest, AStopBeforeTheClosingMeasurementIsNoFinishedRun) {
  options_.eval_data = options_.data[0];
  std::vector<int64_t> measured;
  options_.on_eval = [&](const MetricRecord& record) { measured.push_back(record.step); };
  options_.before_micro_batch = [&](int64_t step, int64_t, const data::Batch&) {
    stop_ = step == 1;
  };
  const auto stopped = Run(2, false);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_EQ(stopped->last_step, 2);
  EXPECT_TRUE(stopped->stopped);
  EXPECT_THAT(notes_, HasSubstr("stopped before --eval-data was measured"));
  EXPECT_EQ(measured, std::vector<int64_t>({0}));

  // Without anything to measure it has done everything.
  options_.eval_data.clear();
  options_.out = dir_ + "/other";
  stop_ = false;
  const auto finished = Run(2, false);
  ASSERT_TRUE(finished.ok()) << finished.status();
  EXPECT_FALSE(finished->stopped);
}

// The measurements of metrics.jsonl as (step, loss).
std::vector<std::pair<int64_t, double>> Measurements(const std::string& run) {
  std::vector<std::pair<int64_t, double>> found;
  std::istringstream lines(*io::ReadFile(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (!record.contains("eval/loss")) continue;
    EXPECT_FALSE(record.contains("learning/loss"));
    EXPECT_GT(record["eval/total_weights"], 0);
    EXPECT_TRUE(record.contains("eval/perplexity"));
    found.emplace_back(record["step"], record["eval/loss"]);
  }
  return found;
}

TEST_F(SftTest, MeasurementsAreRecordedOnceWhateverRestartsThereWere) {
  options_.eval_data = options_.data[0];
  config_.eval_interval = 2;
  config_.checkpoint_period = 1;
  config_.max_num_checkpoints_to_keep = 0;
  config_.engine.schedule.learning_rate = 1e-2;
  std::vector<std::pair<int64_t, double>> told;
  options_.on_eval = [&](const MetricRecord& record) {
    told.emplace_back(record.step, *record.Find("eval/loss"));
  };
  options_.out = dir_ + "/straight";
  ASSERT_TRUE(Run(5, false).ok());
  const auto straight = Measurements(options_.out);
  EXPECT_EQ(told, straight);
  ASSERT_EQ(straight.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(straight[i].first, std::min<int64_t>(2 * i, 5));
  EXPECT_LT(straight[3].second, straight[0].second);

  // Resumed from a step that was measured, from one that was not, and from one that was saved
  // and killed before it was measured.
  for (const int64_t step : {2, 3, 4}) {
    options_.out = dir_ + "/resumed" + std::to_string(step);
    fs::copy(dir_ + "/straight", options_.out,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    for (int64_t later = step + 1; later <= 5; ++later) {
      fs::remove_all(options_.out + "/checkpoints/" + std::to_string(later));
    }
    if (step == 4) {
      std::string kept;
      std::istringstream lines(*io::ReadFile(options_.out + "/metrics.jsonl"));
      for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("{\"step\":4,\"eval")) kept += line + "\n";
      }
      ASSERT_TRUE(io::WriteFile(options_.out + "/metrics.jsonl", kept).ok());
      ASSERT_EQ(Measurements(options_.out).size(), 3u);
    }
    const auto resumed = Run(5, true);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_EQ(resumed->first_step, step);
    EXPECT_EQ(Measurements(options_.out), straight) << step;
  }

  options_.eval_data.clear();
  EXPECT_THAT(std::string(Run(6, true).status().message()),
              HasSubstr("eval_interval=2 says when --eval-data is measured, and there is none"));
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

TEST_F(SftTest, ALoweredDefaultOfTheRowLengthIsTold) {
  config_ = TrainConfig();
  config_.data.batch_size = 2;
  ASSERT_TRUE(Run(1, false).ok());
  EXPECT_THAT(notes_, HasSubstr("max_target_length=128: the model has no more positions (the "
                                "default is 512)"));
}

TEST_F(SftTest, AStopInsideAnUpdateKeepsItsMicroBatches) {
  config_.gradient_accumulation_steps = 3;
  options_.out = dir_ + "/straight";
  ASSERT_TRUE(Run(4, false).ok());
  options_.out = dir_ + "/stopped";
  std::vector<std::pair<int64_t, int64_t>> seen;
  options_.before_micro_batch = [&](int64_t step, int64_t micro_batch, const data::Batch&) {
    seen.emplace_back(step, micro_batch);
    stop_ = step == 2 && micro_batch == 1;
  };
  const auto stopped = Run(4, false);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_TRUE(stopped->stopped);
  EXPECT_EQ(stopped->last_step, 2);
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(seen.back(), (std::pair<int64_t, int64_t>(2, 1)));
  const auto saved = LoadCheckpoint(stopped->checkpoint);
  ASSERT_TRUE(saved.ok()) << saved.status();
  ASSERT_TRUE(saved->engine.partial.has_value());
  EXPECT_EQ(saved->engine.partial->num_micro_batches, 2);
  seen.clear();
  options_.before_micro_batch = [&](int64_t step, int64_t micro_batch, const data::Batch&) {
    seen.emplace_back(step, micro_batch);
  };
  stop_ = false;
  const auto resumed = Run(4, true);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->first_step, 2);
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen.front(), (std::pair<int64_t, int64_t>(2, 2)));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const auto straight = io::ReadFile(dir_ + "/straight/checkpoints/4/" + file);
    const auto continued = io::ReadFile(dir_ + "/stopped/checkpoints/4/" + file);
    ASSERT_TRUE(straight.ok() && continued.ok()) << file;
    EXPECT_EQ(*straight, *continued) << file;
  }
}

TEST_F(SftTest, AStopInsideTheFirstUpdateKeepsItToo) {
  config_.gradient_accumulation_steps = 3;
  options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch&) { stop_ = true; };
  const auto stopped = Run(4, false);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_TRUE(stopped->stopped);
  EXPECT_EQ(stopped->last_step, 0);
  EXPECT_EQ(stopped->checkpoint, options_.out + "/checkpoints/0");
  EXPECT_EQ(stopped->num_micro_batches, 1);
  // Without checkpoints there is nothing to keep it in.
  options_.out = dir_ + "/none";
  config_.enable_checkpointing = false;
  stop_ = false;
  ASSERT_TRUE(Run(4, false).ok());
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(SftTest, AModelsNameThatNoCheckpointCanStateIsRefused) {
  options_.model = "model\xff";
  const absl::Status refused = Run(1, false).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--model is not UTF-8 text"));
}

TEST_F(SftTest, AFolderHasOneRunAtATime) {
  // A second run that would continue the first while that is at work, and one that would not.
  std::vector<absl::Status> others;
  options_.make_console_sink = [&](int64_t) {
    return std::make_unique<CallingSink>([&](int64_t step) {
      if (step != 1) return;
      for (const bool resume : {true, false}) {
        SftOptions other = options_;
        other.resume = resume;
        other.make_console_sink = nullptr;
        others.push_back(RunSft(client_, SharedTestCache(), config_, other, stop_).status());
      }
    });
  };
  ASSERT_TRUE(Run(2, false).ok());
  ASSERT_EQ(others.size(), 2u);
  for (const absl::Status& other : others) {
    EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(other.message()), HasSubstr("another run is writing into"));
  }

  // Two that found an empty folder: the one that gets to its first file later is refused.
  options_.make_console_sink = nullptr;
  options_.out = dir_ + "/contended";
  int held = -1;
  options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch&) {
    if (held >= 0) return;
    fs::create_directories(options_.out);
    held = ::open(options_.out.c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(::flock(held, LOCK_EX | LOCK_NB), 0);
  };
  EXPECT_THAT(std::string(Run(2, false).status().message()),
              HasSubstr("another run is writing into"));
  EXPECT_TRUE(fs::is_empty(options_.out));
  ::close(held);
}

TEST_F(SftTest, ARunThatBeganMeanwhileIsNotOverwritten) {
  bool nested = false;
  options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch&) {
    if (std::exchange(nested, true)) return;
    SftOptions other = options_;
    other.before_micro_batch = nullptr;
    ASSERT_TRUE(RunSft(client_, SharedTestCache(), config_, other, stop_).ok());
  };
  EXPECT_THAT(std::string(Run(2, false).status().message()), HasSubstr("is not empty"));
  EXPECT_TRUE(LoadCheckpoint(options_.out + "/checkpoints/2").ok());
}

TEST_F(SftTest, FilesRemovedDuringTheRunAreAFailureAfterTheSave) {
  options_.make_console_sink = [&](int64_t) {
    return std::make_unique<CallingSink>([&](int64_t step) {
      if (step == 2) fs::remove_all(options_.out);
    });
  };
  const absl::Status status = Run(4, false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("config.yaml with metrics.jsonl was removed from " + options_.out));
  EXPECT_THAT(std::string(status.message()), HasSubstr("saved as " + options_.out));
  EXPECT_TRUE(LoadCheckpoint(options_.out + "/checkpoints/4").ok());
}

TEST_F(SftTest, ACheckpointIsNoFolderOfARun) {
  ASSERT_TRUE(Run(1, false).ok());
  const std::string run = options_.out;
  for (const char* inner :
       {"/checkpoints/1", "/checkpoints/1/", "/checkpoints/latest", "/checkpoints"}) {
    options_.out = run + inner;
    for (const bool resume : {false, true}) {
      const absl::Status status = Run(2, resume).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("give --out " + run + " --resume"));
    }
  }
  EXPECT_TRUE(LoadCheckpoint(run + "/checkpoints/1").ok());
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
