#include "meshwright/train/sft.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
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
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
    fs::remove(path);
    ASSERT_TRUE(io::WriteFile(path, bytes).ok());
  }

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

TEST_F(SftTest, AStopDispatchesNothingMoreAndSaysWhatItWaitsFor) {
  options_.make_console_sink = [&](int64_t) {
    return std::make_unique<CallingSink>([&](int64_t step) {
      if (step == 3) stop_ = true;
    });
  };
  options_.before_micro_batch = [&](int64_t, int64_t) { EXPECT_FALSE(stop_.load()); };
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
  options_.on_eval = [&](int64_t step, const EvalMetrics&) { measured.push_back(step); };
  options_.before_micro_batch = [&](int64_t step, int64_t) { stop_ = step == 1; };
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
  options_.on_eval = [&](int64_t step, const EvalMetrics& metrics) {
    told.emplace_back(step, metrics.Loss());
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

TEST_F(SftTest, ADamagedCheckpointIsRefusedWithTheOlderOneThatIsWhole) {
  config_.checkpoint_period = 1;
  config_.max_num_checkpoints_to_keep = 0;
  ASSERT_TRUE(Run(3, false).ok());
  const std::string folder = options_.out + "/checkpoints/";
  Damage(folder + "3/model.safetensors");
  Damage(folder + "2/optimizer.safetensors");
  const absl::Status refused = Run(4, true).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("3/model.safetensors"),
                    HasSubstr("; checkpoint 1 of the run is whole: remove " + folder + "3 and " +
                              folder + "2 to resume from it")));
  // What the sentence says works.
  fs::remove_all(folder + "3");
  fs::remove_all(folder + "2");
  const auto resumed = Run(4, true);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->first_step, 1);
  EXPECT_EQ(resumed->last_step, 4);
}

TEST_F(SftTest, DamageWithNothingOlderSaysSo) {
  ASSERT_TRUE(Run(1, false).ok());
  Damage(options_.out + "/checkpoints/1/engine_state.json");
  EXPECT_THAT(std::string(Run(2, true).status().message()),
              HasSubstr("the run has no older checkpoint that is whole"));
}

TEST_F(SftTest, AnotherOptimizerStateIsRefusedWithBothValues) {
  config_.engine.optimizer.sgd_momentum = 0.5;
  ASSERT_TRUE(Run(1, false).ok());
  config_.engine.optimizer.opt_type = "sgd";
  absl::Status refused = Run(2, true).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("opt_type=adamw"), HasSubstr("does not fit opt_type=sgd: resume")));

  config_.engine.optimizer.opt_type = "adamw";
  config_.engine.skip_step_on_spikes = true;
  refused = Run(2, true).status();
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("skip_step_on_spikes=false"),
                                                    HasSubstr("fit skip_step_on_spikes=true:")));

  // What gives the state no other shape may change.
  config_.engine.skip_step_on_spikes = false;
  config_.engine.optimizer.sgd_momentum = 0;
  config_.engine.schedule.learning_rate = 1e-5;
  EXPECT_TRUE(Run(2, true).ok());
}

TEST_F(SftTest, AnotherOrderOfTheDataIsRefusedWithBothValues) {
  ASSERT_TRUE(Run(1, false).ok());
  config_.data.seed = 9;
  EXPECT_THAT(std::string(Run(2, true).status().message()),
              HasSubstr("the run has seed=0, not seed=9: resume with seed=0"));
  config_.data.seed = 0;
  ASSERT_TRUE(io::WriteFile(dir_ + "/other.jsonl", "{\"input_ids\": [3, 4, 5]}\n").ok());
  options_.data = {dir_ + "/other.jsonl"};
  EXPECT_THAT(std::string(Run(2, true).status().message()), HasSubstr("--data holds other rows"));
}

TEST_F(SftTest, AnotherSeedOfTheWeightsIsNoContinuation) {
  ASSERT_TRUE(Run(1, false).ok());
  for (const char* model : {"random:tiny-llama:2", "random:tiny-llama"}) {
    options_.model = model;
    const absl::Status refused = Run(2, true).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr(std::string("--model is ") + model + ","),
                      HasSubstr("began with random:tiny-llama:1")));
  }
  // The run's own weights are as good a model to name as what it began with.
  options_.model = options_.out;
  EXPECT_TRUE(Run(2, true).ok());
}

TEST_F(SftTest, AResumedRunKnowsItsModel) {
  ASSERT_TRUE(Run(1, false).ok());
  options_.model.clear();
  // Twice, since each checkpoint states it anew.
  for (const int64_t steps : {2, 3}) {
    notes_.clear();
    const auto resumed = Run(steps, true);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_EQ(resumed->last_step, steps);
    EXPECT_THAT(notes_, HasSubstr("--model is random:tiny-llama:1, with which the run began"));
  }

  // One that is not there any more, and one that was never stated.
  const std::string state = options_.out + "/checkpoints/3/engine_state.json";
  const auto json = nlohmann::json::parse(*io::ReadFile(state));
  auto changed = json;
  changed["metadata"]["model"] = "/no/such/model";
  ASSERT_TRUE(io::WriteFile(state, changed.dump()).ok());
  EXPECT_THAT(std::string(Run(4, true).status().message()),
              HasSubstr("began with the model /no/such/model, which is not there: give --model"));
  changed["metadata"].erase("model");
  ASSERT_TRUE(io::WriteFile(state, changed.dump()).ok());
  EXPECT_THAT(std::string(Run(4, true).status().message()),
              HasSubstr("does not say which model the run began with: give --model"));
  options_.out = dir_ + "/none";
  EXPECT_THAT(std::string(Run(4, true).status().message()), HasSubstr("has no checkpoint"));
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
  options_.before_micro_batch = [&](int64_t step, int64_t micro_batch) {
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
  options_.before_micro_batch = [&](int64_t step, int64_t micro_batch) {
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

TEST_F(SftTest, WhatAnUpdateSumsIsNotMixed) {
  config_.gradient_accumulation_steps = 3;
  options_.out = dir_ + "/straight";
  ASSERT_TRUE(Run(2, false).ok());
  options_.out = dir_ + "/stopped";
  options_.before_micro_batch = [&](int64_t step, int64_t micro_batch) {
    stop_ = step == 1 && micro_batch == 1;
  };
  const auto stopped = Run(2, false);
  ASSERT_TRUE(stopped.ok() && stopped->stopped) << stopped.status();
  options_.before_micro_batch = nullptr;
  stop_ = false;
  const TrainConfig saved = config_;
  const auto refused = [&](const std::string& key, const std::string& value) {
    config_ = saved;
    EXPECT_TRUE(SetConfigValue(config_, key, value, "test").ok());
    const absl::Status status = Run(2, true).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused("batch_size", "1"),
              HasSubstr("has accumulated 2 micro-batches of an update with batch_size=2, to which "
                        "those with batch_size=1 do not add: resume with batch_size=2, or give "
                        "--restart-update with --resume"));
  for (const auto& [key, value] : {std::pair<const char*, const char*>{"loss.z_loss", "0.001"},
                                   {"gradient_accumulation_steps", "2"},
                                   {"pad_first", "true"},
                                   {"dtype", "bf16"},
                                   {"weight_dtype", "bf16"},
                                   {"matmul_precision", "highest"}}) {
    EXPECT_THAT(refused(key, value),
                AllOf(HasSubstr(std::string(key) + "=" + value + " do not add"),
                      HasSubstr("or give --restart-update with --resume")));
  }

  // Damage that only the sum has.
  config_ = saved;
  const std::string folder = options_.out + "/checkpoints/1";
  fs::resize_file(folder + "/accumulator.safetensors", 100);
  const absl::Status damaged = Run(2, true).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()),
              AllOf(HasSubstr("accumulator.safetensors has 100 bytes"),
                    HasSubstr("the rest of " + folder + " is whole: give --restart-update")));

  // The way out: the update is made of the same rows as if there had been no stop, and when
  // that is stopped as well, again.
  options_.restart_update = true;
  options_.before_micro_batch = [&](int64_t, int64_t) { stop_ = true; };
  ASSERT_TRUE(Run(2, true).ok());
  EXPECT_THAT(notes_, HasSubstr("begins again"));
  options_.before_micro_batch = nullptr;
  stop_ = false;
  const auto restarted = Run(2, true);
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  EXPECT_EQ(restarted->last_step, 2);
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "engine_state.json"}) {
    EXPECT_EQ(*io::ReadFile(dir_ + "/straight/checkpoints/2/" + file),
              *io::ReadFile(dir_ + "/stopped/checkpoints/2/" + file))
        << file;
  }
}

// What only the update reads, where things lie and what is written may change inside one.
TEST_F(SftTest, AnUpdateUnderWayMayEndWithOtherSettings) {
  config_.gradient_accumulation_steps = 2;
  options_.before_micro_batch = [&](int64_t, int64_t) { stop_ = true; };
  ASSERT_TRUE(Run(1, false).ok());
  options_.before_micro_batch = nullptr;
  stop_ = false;
  config_.engine.schedule.learning_rate = 1e-3;
  config_.engine.gradient_clipping_threshold = 0.5;
  config_.engine.loss.head_chunk_tokens = 8;
  config_.log_period = 2;
  config_.tensorboard = false;
  const auto resumed = Run(1, true);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->last_step, 1);
  // Whole checkpoints have nothing to restart.
  options_.restart_update = true;
  ASSERT_TRUE(Run(2, true).ok());
  EXPECT_THAT(notes_, HasSubstr("there is none to begin again"));
}

TEST_F(SftTest, MetricsThatAreNoFileAreRefused) {
  ASSERT_TRUE(Run(1, false).ok());
  fs::remove(options_.out + "/metrics.jsonl");
  fs::create_symlink("/dev/full", options_.out + "/metrics.jsonl");
  const absl::Status refused = Run(2, true).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("metrics.jsonl is no regular file"));
  fs::remove(options_.out + "/metrics.jsonl");
  EXPECT_TRUE(Run(2, true).ok());
}

TEST_F(SftTest, AStopInsideTheFirstUpdateKeepsItToo) {
  config_.gradient_accumulation_steps = 3;
  options_.before_micro_batch = [&](int64_t, int64_t) { stop_ = true; };
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

TEST_F(SftTest, AContinuationTellsWhichSettingsDiffer) {
  config_.engine.schedule.learning_rate = 1e-3;
  ASSERT_TRUE(Run(1, false).ok());
  EXPECT_THAT(notes_, Not(HasSubstr("settings that differ")));
  config_.engine.schedule.learning_rate = 1e-4;
  ASSERT_TRUE(Run(2, true).ok());
  EXPECT_THAT(notes_, HasSubstr("settings that differ from the run's so far: "));
  EXPECT_THAT(notes_, HasSubstr("steps=2 (was 1)"));
  EXPECT_THAT(notes_, HasSubstr("learning_rate=0.0001 (was 0.001)"));
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
  options_.before_micro_batch = [&](int64_t, int64_t) {
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
  options_.before_micro_batch = [&](int64_t, int64_t) {
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
