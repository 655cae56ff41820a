#include "meshwright/train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/train/loss_totals.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "mw_checkpoint_XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    run_ = path;
  }
  void TearDown() override { fs::remove_all(run_); }

  CheckpointState State(int64_t step) const {
    CheckpointState s;
    s.engine.step = step;
    s.engine.num_skipped_steps = 1;
    const std::vector<float> values = {1.5f, -0.0f, 1e-40f, static_cast<float>(step)};
    s.engine.tensors["m.w"] = HostTensor::From<float>(DType::kF32, {2, 2}, values);
    s.engine.tensors["count"] = HostTensor::From<int32_t>(DType::kS32, {}, std::vector<int32_t>{3});
    s.data_iterator = R"({"epoch": 2})";
    s.seed = UINT64_MAX;
    s.metadata["note"] = "x";
    return s;
  }
  // Of a partial step.
  static HostTensor Sums(float denominator) {
    std::vector<float> sums(4, 2.5f);
    sums[kLossDenominator] = denominator;
    return HostTensor::From<float>(DType::kF32, {4}, sums);
  }
  absl::Status Save(int64_t step, int64_t keep = 0) const {
    return SaveCheckpoint(
               run_, State(step),
               [](const std::string& dir) { return io::WriteFile(dir + "/config.json", "{}"); },
               {.max_num_checkpoints_to_keep = keep})
        .status();
  }

  std::string run_;
};

TEST_F(CheckpointTest, RoundTripIsBitIdentical) {
  ASSERT_TRUE(Save(7).ok());
  const auto loaded = LoadCheckpoint(run_ + "/checkpoints/latest");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const CheckpointState saved = State(7);
  EXPECT_EQ(loaded->engine.step, 7);
  EXPECT_EQ(loaded->engine.num_skipped_steps, 1);
  EXPECT_EQ(loaded->seed, saved.seed);
  EXPECT_EQ(loaded->data_iterator, saved.data_iterator);
  EXPECT_EQ(loaded->metadata, saved.metadata);
  ASSERT_EQ(loaded->engine.tensors.size(), 2u);
  for (const auto& [name, tensor] : saved.engine.tensors) {
    const HostTensor& other = loaded->engine.tensors.at(name);
    ASSERT_EQ(other.dims(), tensor.dims());
    EXPECT_EQ(std::memcmp(other.bytes(), tensor.bytes(), tensor.num_bytes()), 0) << name;
  }
}

TEST_F(CheckpointTest, APartialStepIsOfTheLastWholeOne) {
  ASSERT_TRUE(Save(7).ok());
  CheckpointState state = State(7);
  PartialStep& partial = state.engine.partial.emplace();
  partial.num_micro_batches = 3;
  partial.num_tokens = 96;
  partial.sums = Sums(4);
  partial.micro_batches = {{0.1, 0.5}, {std::nan(""), 0}, {-1e300, 3.5}};
  // Whatever the caller wants back.
  state.metadata = {{"", "empty"}, {"stage", "sft"}, {"täg", "{\"a\": [1, null]}\n\t\"ö\""}};
  partial.accumulators["w"] =
      HostTensor::From<float>(DType::kF32, {2}, std::vector<float>{-0.0f, 1e-40f});
  const auto save = [&] {
    return SaveCheckpoint(run_, state, [](const std::string& dir) {
      return io::WriteFile(dir + "/config.json", "{}");
    });
  };
  ASSERT_TRUE(save().ok());
  const auto loaded = LoadCheckpoint(run_ + "/checkpoints/latest");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_TRUE(loaded->engine.partial.has_value());
  EXPECT_EQ(loaded->engine.step, 7);
  EXPECT_EQ(loaded->engine.partial->num_micro_batches, 3);
  EXPECT_EQ(loaded->engine.partial->num_tokens, 96);
  EXPECT_EQ(loaded->metadata, state.metadata);
  EXPECT_EQ(loaded->engine.partial->denominator(), 4);
  ASSERT_EQ(loaded->engine.partial->micro_batches.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const MicroBatchSums& each = loaded->engine.partial->micro_batches[i];
    EXPECT_EQ(each.denominator, partial.micro_batches[i].denominator);
    if (i == 1) continue;
    EXPECT_EQ(each.loss_sum, partial.micro_batches[i].loss_sum);
  }
  EXPECT_TRUE(std::isnan(loaded->engine.partial->micro_batches[1].loss_sum));
  ASSERT_EQ(loaded->engine.partial->accumulators.size(), 1u);
  const HostTensor& w = loaded->engine.partial->accumulators.at("w");
  EXPECT_EQ(std::memcmp(w.bytes(), partial.accumulators.at("w").bytes(), 8), 0);

  state.engine.partial.reset();
  ASSERT_TRUE(save().ok());
  EXPECT_FALSE(LoadCheckpoint(run_ + "/checkpoints/latest")->engine.partial.has_value());
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints/7/accumulator.safetensors"));
}

// E-17: 0 is a denominator, and what is not there is none.
TEST_F(CheckpointTest, AnAbsentDenominatorIsNotZero) {
  CheckpointState state = State(7);
  PartialStep& partial = state.engine.partial.emplace();
  partial.num_micro_batches = 2;
  const auto save = [&](float denominator, const std::vector<double>& of_micro_batches) {
    partial.sums = Sums(denominator);
    partial.micro_batches.clear();
    for (const double each : of_micro_batches) partial.micro_batches.push_back({1.5, each});
    const auto saved = SaveCheckpoint(run_, state, [](const std::string& dir) {
      return io::WriteFile(dir + "/config.json", "{}");
    });
    EXPECT_TRUE(saved.ok()) << saved.status();
    return run_ + "/checkpoints/7";
  };
  // Writes engine_state.json anew, as if it had been saved so.
  const auto change = [&](const std::string& dir, const auto& edit) {
    const std::string path = dir + "/engine_state.json";
    auto json = nlohmann::json::parse(*io::ReadFile(path));
    edit(json);
    EXPECT_TRUE(io::WriteFile(path, json.dump()).ok());
    const auto manifest = io::Manifest::FromDirectory(dir);
    EXPECT_TRUE(manifest.ok() && manifest->WriteTo(dir).ok());
    return LoadCheckpoint(dir);
  };
  const auto refusal = [](const absl::StatusOr<CheckpointState>& loaded) {
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss);
    return std::string(loaded.status().message());
  };
  const auto nothing = [](nlohmann::json&) {};
  const auto without = [](nlohmann::json& json) { json.erase("accumulated_denominator"); };

  // Micro-batches without a token are an update of denominator 0, stated or not.
  for (const bool stated : {true, false}) {
    const std::string dir = save(0, {0, 0});
    const auto loaded = stated ? change(dir, nothing) : change(dir, without);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->engine.partial->denominator(), 0);
  }
  // Absent, it is what the micro-batches say.
  const auto rebuilt = change(save(40.5f, {16.5, 24}), without);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  EXPECT_EQ(rebuilt->engine.partial->denominator(), 40.5f);
  EXPECT_EQ(rebuilt->engine.partial->micro_batches[1].denominator, 24);
  // It never is 0 because nothing says what it is.
  EXPECT_THAT(refusal(change(save(40, {16, 24}),
                             [](nlohmann::json& json) {
                               json.erase("accumulated_denominator");
                               json.erase("micro_batches");
                             })),
              ::testing::HasSubstr(
                  "engine_state.json: it has neither accumulated_denominator nor micro_batches"));
  // All that tell of it agree.
  EXPECT_THAT(refusal(change(save(40, {16, 24}),
                             [](nlohmann::json& json) { json["accumulated_denominator"] = 0.0; })),
              ::testing::HasSubstr("denominator is 0, but loss_sums in accumulator.safetensors "
                                   "holds 40"));
  EXPECT_THAT(
      refusal(change(save(40, {16, 24}),
                     [](nlohmann::json& json) { json["micro_batches"][1]["denominator"] = 25; })),
      ::testing::HasSubstr("those of its micro_batches add up to 41"));
  EXPECT_THAT(refusal(change(save(40, {16, 24}),
                             [](nlohmann::json& json) {
                               json.erase("accumulated_denominator");
                               json["micro_batches"].erase(1);
                             })),
              ::testing::HasSubstr("denominator is 16, but loss_sums in accumulator.safetensors "
                                   "holds 40"));
  EXPECT_THAT(
      refusal(change(save(40, {16, 24}),
                     [](nlohmann::json& json) { json["accumulated_denominator"] = "forty"; })),
      ::testing::HasSubstr("engine_state.json"));
  // Without what is accumulated nothing of it matters.
  EXPECT_TRUE(LoadCheckpoint(run_ + "/checkpoints/7", PartialUpdate::kDrop).ok());
}

TEST_F(CheckpointTest, RetentionKeepsTheNewest) {
  for (const int64_t step : {1, 2, 3, 10}) ASSERT_TRUE(Save(step, 2).ok());
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints/2"));
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints/3"));
  const auto found = FindLatestCheckpoint(run_);
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->step, 10);
}

TEST_F(CheckpointTest, RetentionLeavesWhatIsNoCheckpoint) {
  const std::string dir = run_ + "/checkpoints/";
  ASSERT_TRUE(Save(1, 2).ok());
  const std::vector<std::string> foreign = {"notes", "3-best", "007", "2"};
  for (const std::string& name : foreign) {
    fs::create_directories(dir + name);
    ASSERT_TRUE(io::WriteFile(dir + name + "/config.json", "{}").ok());
  }
  ASSERT_TRUE(io::WriteFile(dir + "readme.txt", "mine").ok());
  // One inside an update takes no place of its own.
  CheckpointState inside = State(4);
  PartialStep& partial = inside.engine.partial.emplace();
  partial.num_micro_batches = 1;
  partial.sums = Sums(1);
  const auto write = [](const std::string& to) { return io::WriteFile(to + "/config.json", "{}"); };
  ASSERT_TRUE(SaveCheckpoint(run_, inside, write, {.max_num_checkpoints_to_keep = 2}).ok());
  EXPECT_TRUE(fs::exists(dir + "1"));
  ASSERT_TRUE(Save(4, 2).ok());
  EXPECT_TRUE(fs::exists(dir + "1"));
  EXPECT_FALSE(fs::exists(dir + "4/accumulator.safetensors"));
  ASSERT_TRUE(Save(5, 2).ok());
  EXPECT_FALSE(fs::exists(dir + "1"));
  EXPECT_TRUE(fs::exists(dir + "4"));
  for (const std::string& name : foreign) EXPECT_TRUE(fs::exists(dir + name + "/config.json"));
  EXPECT_TRUE(fs::exists(dir + "readme.txt"));
}

TEST_F(CheckpointTest, LeftoversArePassedOverAloud) {
  ASSERT_TRUE(Save(4).ok());
  fs::create_directories(run_ + "/checkpoints/9.tmp-1");
  fs::create_directories(run_ + "/checkpoints/8");
  std::vector<std::string> notes;
  const auto found = FindLatestCheckpoint(run_, &notes);
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->step, 4);
  EXPECT_EQ(notes.size(), 2u);
}

TEST_F(CheckpointTest, DamageIsRefusedWithTheFile) {
  for (const char* name : {"optimizer.safetensors", "engine_state.json", "config.json"}) {
    ASSERT_TRUE(Save(5).ok());
    const std::string path = run_ + "/checkpoints/5/" + name;
    std::string bytes = *io::ReadFile(path);
    bytes.back() ^= 1;
    std::ofstream(path, std::ios::binary) << bytes;
    const auto loaded = LoadCheckpoint(run_ + "/checkpoints/5");
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss) << name;
    EXPECT_THAT(std::string(loaded.status().message()), ::testing::HasSubstr(name));
    fs::resize_file(path, bytes.size() - 1);
    EXPECT_FALSE(LoadCheckpoint(run_ + "/checkpoints/5").ok()) << name;
  }
}

// Else `--resume` would go back to step 4, as the newest, without a word.
TEST_F(CheckpointTest, ACopyUnderAnotherStepsNameIsRefused) {
  ASSERT_TRUE(Save(4).ok());
  const std::string dir = run_ + "/checkpoints/";
  fs::copy(dir + "4", dir + "9");
  const auto loaded = LoadCheckpoint(dir + "9");
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(std::string(loaded.status().message()),
            dir +
                "9/engine_state.json is of step 4, and the folder's name says 9: a checkpoint was "
                "copied or renamed");
  EXPECT_FALSE(LoadCheckpoint(dir + "9/", PartialUpdate::kDrop).ok());
  EXPECT_TRUE(LoadCheckpoint(dir + "4").ok());
  EXPECT_TRUE(LoadCheckpoint(dir + "latest").ok());
  // Outside a run the name is anybody's.
  fs::copy(dir + "4", run_ + "/9");
  EXPECT_TRUE(LoadCheckpoint(run_ + "/9").ok());
}

TEST_F(CheckpointTest, AFailedSaveLeavesTheOldOne) {
  ASSERT_TRUE(Save(1).ok());
  EXPECT_FALSE(SaveCheckpoint(run_, State(2), [](const std::string& dir) {
                 io::WriteFile(dir + "/half", "x").IgnoreError();
                 return absl::ResourceExhaustedError("disk full");
               }).ok());
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints/2"));
  EXPECT_TRUE(LoadCheckpoint(run_ + "/checkpoints/latest").ok());
}

}  // namespace
}  // namespace mw::train
