// What --resume continues and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "meshwright/io/checksum.h"
#include "meshwright/train/checkpoint.h"
#include "meshwright/train/sft_run_for_test.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  ASSERT_TRUE(Run(1, false).ok());
  config_.engine.optimizer.opt_type = "sgd";
  config_.engine.optimizer.sgd_momentum = 0.5;
  absl::Status refused = Run(2, true).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("opt_type=adamw"), HasSubstr("does not fit opt_type=sgd: resume")));

  config_.engine.optimizer = {};
  config_.engine.skip_step_on_spikes = true;
  refused = Run(2, true).status();
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("skip_step_on_spikes=false"),
                                                    HasSubstr("fit skip_step_on_spikes=true:")));

  config_.engine.skip_step_on_spikes = false;
  config_.engine.trainable_parameters = "*.mlp.*";
  refused = Run(2, true).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("fit trainable_parameters=*.mlp.*:"));

  EXPECT_THAT(std::string(refused.message()), HasSubstr("resume with trainable_parameters=\"\","));

  config_.engine.trainable_parameters = "";
  config_.engine.model.scan_layers = false;
  refused = Run(2, true).status();
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("has scan_layers=true, whose"),
                                                    HasSubstr("resume with scan_layers=true, ")));
  config_.engine.model.scan_layers = true;

  // What gives the state no other shape may change.
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
  const std::string newest = options_.out + "/checkpoints/3";
  const std::string state = newest + "/engine_state.json";
  const auto json = nlohmann::json::parse(*io::ReadFile(state));
  auto changed = json;
  const auto write = [&](const std::string& text) {
    ASSERT_TRUE(io::WriteFile(state, text).ok());
    ASSERT_TRUE(io::Manifest::FromDirectory(newest)->WriteTo(newest).ok());
  };
  changed["metadata"]["model"] = "/no/such/model";
  write(changed.dump());
  EXPECT_THAT(std::string(Run(4, true).status().message()),
              HasSubstr("began with the model /no/such/model, which is not there: give --model"));
  changed["metadata"].erase("model");
  write(changed.dump());
  EXPECT_THAT(std::string(Run(4, true).status().message()),
              HasSubstr("does not say which model the run began with: give --model"));
  // Damage that leaves it without a name, or with another, is told as damage.
  for (const std::string& damaged : {std::string("{"), changed.dump() + " "}) {
    ASSERT_TRUE(io::WriteFile(state, damaged).ok());
    EXPECT_THAT(std::string(Run(4, true).status().message()),
                AllOf(HasSubstr("engine_state.json"), HasSubstr("of the run is whole")));
  }
  // What is no complete checkpoint is said to be there.
  for (const char* step : {"1", "2", "3"}) {
    std::filesystem::remove(options_.out + "/checkpoints/" + step + "/manifest.json");
  }
  EXPECT_THAT(
      std::string(Run(4, true).status().message()),
      AllOf(HasSubstr("has no checkpoint to resume"), HasSubstr("it has no manifest.json")));
  options_.out = dir_ + "/none";
  EXPECT_THAT(std::string(Run(4, true).status().message()), HasSubstr("has no checkpoint"));
}

TEST_F(SftTest, WhatAnUpdateSumsIsNotMixed) {
  config_.gradient_accumulation_steps = 3;
  options_.out = dir_ + "/straight";
  ASSERT_TRUE(Run(2, false).ok());
  options_.out = dir_ + "/stopped";
  options_.before_micro_batch = [&](int64_t step, int64_t micro_batch, const data::Batch&) {
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
  options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch&) { stop_ = true; };
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
  options_.before_micro_batch = [&](int64_t, int64_t, const data::Batch&) { stop_ = true; };
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

}  // namespace
}  // namespace mw::train
