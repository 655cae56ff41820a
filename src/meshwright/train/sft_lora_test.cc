// Runs that train adapters in place of the model.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <set>

#include "meshwright/io/checksum.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/sft_run_for_test.h"
#include "meshwright/train/training_data.h"

namespace mw::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class SftLoraTest : public SftTest {
 protected:
  void SetUp() override {
    SftTest::SetUp();
    base_ = dir_ + "/base";
    CopyTinyModel("tiny-llama", base_);
    options_.model = base_;
    Lora().rank = 4;
    Lora().target_modules = "q_proj,down_proj";
    config_.engine.schedule.learning_rate = 1e-2;
    config_.engine.schedule.lr_schedule = "constant";
    config_.eval_interval = -1;
  }
  models::LoraOptions& Lora() { return config_.engine.model.lora; }
  std::string Checkpoint(int64_t step) const {
    return options_.out + "/checkpoints/" + std::to_string(step);
  }
  // The loss of what `model` is, on the data of the run.
  double Loss(const std::string& model) {
    auto opened = OpenModel(model);
    EXPECT_TRUE(opened.ok()) << opened.status();
    TrainConfig config = config_;
    config.engine.model.lora = {};
    auto dataset = LoadTrainingData(*opened, options_.data, config);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    auto engine = MakeEngine(client_, SharedTestCache(), *opened, config, true);
    EXPECT_TRUE(engine.ok()) << engine.status();
    const auto metrics = Evaluate(**engine, *dataset, config);
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    return metrics->Loss();
  }

  std::string base_;
};

TEST_F(SftLoraTest, ACheckpointIsAnAdapterOfTheUntouchedBase) {
  const std::string before = ReadText(base_ + "/model.safetensors");
  const double start = Loss(base_);
  const auto result = Run(6, false);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ReadText(base_ + "/model.safetensors"), before);
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(Checkpoint(6))) {
    files.insert(entry.path().filename().string());
  }
  EXPECT_THAT(files,
              UnorderedElementsAre("adapter_config.json", "adapter_model.safetensors",
                                   "engine_state.json", "manifest.json", "optimizer.safetensors"));
  const auto opened = OpenModel(options_.out);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_TRUE(opened->adapter);
  EXPECT_TRUE(opened->adapter->lora.SameAs(Lora()));
  EXPECT_EQ(opened->base_name, std::filesystem::canonical(base_).string());
  EXPECT_TRUE(VerifyFiles(*opened).ok());
  const double trained = Loss(options_.out);
  EXPECT_LT(trained, start - 0.5);
  // The optimizer knows of the adapters only: 2 modules, A and B, two moments each.
  const auto optimizer = *io::SafetensorsFile::Open(Checkpoint(6) + "/optimizer.safetensors");
  int moments = 0;
  for (const std::string& name : optimizer->names()) {
    if (name.starts_with("m.") || name.starts_with("v.")) {
      EXPECT_THAT(name, HasSubstr(".lora_"));
      ++moments;
    }
  }
  EXPECT_EQ(moments, 8);
}

TEST_F(SftLoraTest, ARunThatIsResumedEndsWithTheSameAdapters) {
  ASSERT_TRUE(Run(6, false).ok());
  const std::string whole = ReadText(Checkpoint(6) + "/adapter_model.safetensors");
  options_.out = dir_ + "/again";
  ASSERT_TRUE(Run(3, false).ok());
  // Neither the model nor the adapter's settings need be said again.
  options_.model.clear();
  Lora() = {};
  ASSERT_TRUE(Run(6, true).ok());
  EXPECT_TRUE(ReadText(Checkpoint(6) + "/adapter_model.safetensors") == whole);
  EXPECT_FALSE(ReadText(Checkpoint(3) + "/adapter_model.safetensors") == whole);
}

TEST_F(SftLoraTest, WhatIsNoContinuationIsRefused) {
  ASSERT_TRUE(Run(2, false).ok());
  Lora().rank = 8;
  EXPECT_THAT(ErrorOf(Run(4, true)),
              AllOf(HasSubstr("has lora.rank=4"), HasSubstr("leave the lora")));
  Lora() = {};
  std::string bytes = ReadText(base_ + "/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  WriteText(base_ + "/model.safetensors", bytes);
  EXPECT_THAT(ErrorOf(Run(4, true)), AllOf(HasSubstr("is not the one that the adapter"),
                                           HasSubstr("give the model that the run began with")));
  // Nor is the adapter measured, sampled from or merged with it.
  const auto other = OpenModel(options_.out, base_);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(VerifyFiles(*other).code(), absl::StatusCode::kFailedPrecondition);
  // The same base at another place is.
  CopyTinyModel("tiny-llama", dir_ + "/moved");
  std::filesystem::remove_all(base_);
  EXPECT_THAT(ErrorOf(Run(4, true)), HasSubstr("no model at"));
  options_.model.clear();
  EXPECT_THAT(ErrorOf(Run(4, true)), HasSubstr("which is not there: give --model"));
  options_.model = dir_ + "/moved";
  const auto moved = Run(4, true);
  EXPECT_TRUE(moved.ok()) << moved.status();

  options_.out = dir_ + "/full";
  ASSERT_TRUE(Run(2, false).ok());
  Lora().rank = 4;
  EXPECT_THAT(ErrorOf(Run(4, true)), HasSubstr("trains the whole model and not adapters"));
}

TEST_F(SftLoraTest, AnAdapterIsTrainedFurther) {
  ASSERT_TRUE(Run(3, false).ok());
  const std::string first = Checkpoint(3);
  const double before = Loss(first);
  options_.model = first;
  options_.out = dir_ + "/further";
  Lora() = {};
  ASSERT_TRUE(Run(3, false).ok());
  EXPECT_LT(Loss(Checkpoint(3)), before);
  const auto opened = OpenModel(Checkpoint(3));
  ASSERT_TRUE(opened.ok()) << opened.status();
  // Of the base, not of the adapter that it began with.
  EXPECT_EQ(opened->base_name, std::filesystem::canonical(base_).string());
  EXPECT_EQ(opened->adapter->lora.rank, 4);
  Lora().rank = 2;
  options_.out = dir_ + "/other";
  EXPECT_THAT(ErrorOf(Run(3, false)), HasSubstr("has lora.rank=4"));
}

TEST_F(SftLoraTest, ARunFromAnAdapterWhoseBaseHasMovedNamesTheBase) {
  ASSERT_TRUE(Run(1, false).ok());
  options_.model = Checkpoint(1);
  options_.out = dir_ + "/further";
  Lora() = {};
  ASSERT_TRUE(Run(1, false).ok());
  std::filesystem::rename(base_, dir_ + "/moved");
  options_.model.clear();
  EXPECT_THAT(ErrorOf(Run(2, true)), AllOf(HasSubstr("belongs to the base model " + base_),
                                           HasSubstr("give --base MODEL with --model")));
  options_.model = dir_ + "/run";
  options_.base = dir_ + "/moved";
  const auto resumed = Run(2, true);
  EXPECT_TRUE(resumed.ok()) << resumed.status();
}

// Whatever is kept for the backward pass, the adapters get the same gradients.
TEST_F(SftLoraTest, RematAndScanChangeNothing) {
  Lora().target_modules = "all-linear";
  // Its updates are as large as the gradients: rounding stays rounding.
  config_.engine.optimizer.opt_type = "sgd";
  config_.engine.schedule.learning_rate = 1;
  std::map<std::string, HostTensor> usual;
  for (const char* policy : {"none", "full", "minimal", "save_dot_except_mlp"}) {
    for (const char* scan : {"true", "false"}) {
      ASSERT_TRUE(SetConfigValue(config_, "remat_policy", policy, "test").ok());
      ASSERT_TRUE(SetConfigValue(config_, "scan_layers", scan, "test").ok());
      options_.out = dir_ + "/" + policy + scan;
      const auto result = Run(4, false);
      ASSERT_TRUE(result.ok()) << result.status();
      const auto file = *io::SafetensorsFile::Open(Checkpoint(4) + "/adapter_model.safetensors");
      for (const std::string& name : file->names()) {
        const HostTensor tensor = *file->Read(name);
        const auto [it, first] = usual.try_emplace(name, tensor);
        if (first) continue;
        for (int64_t i = 0; i < tensor.num_elements(); ++i) {
          ASSERT_NEAR(tensor.as<float>()[i], it->second.as<float>()[i], 1e-6)
              << policy << " " << scan << " " << name;
        }
      }
    }
  }
  EXPECT_EQ(usual.size(), 3u * 7 * 2);
  const HostTensor& b = usual.at("base_model.model.model.layers.0.mlp.up_proj.lora_B.weight");
  EXPECT_GT(std::abs(b.as<float>()[0]), 1e-5) << "nothing was trained";
}

TEST_F(SftLoraTest, Bfloat16IsOfTheComputationOrOfTheAdaptersToo) {
  const double start = Loss(base_);
  for (const bool weights : {false, true}) {
    config_.engine.model.compute_dtype = DType::kBF16;
    config_.engine.weight_dtype = weights ? DType::kBF16 : DType::kF32;
    Lora().rank = 4;
    options_.out = dir_ + (weights ? "/weights" : "/compute");
    ASSERT_TRUE(Run(6, false).ok());
    const std::string whole = ReadText(Checkpoint(6) + "/adapter_model.safetensors");
    const auto file = *io::SafetensorsFile::Open(Checkpoint(6) + "/adapter_model.safetensors");
    EXPECT_EQ(file->Read(file->names()[0])->dtype(), config_.engine.weight_dtype);
    EXPECT_LT(Loss(options_.out), start - 0.5);
    options_.out += "_again";
    ASSERT_TRUE(Run(3, false).ok());
    ASSERT_TRUE(Run(6, true).ok());
    EXPECT_TRUE(ReadText(Checkpoint(6) + "/adapter_model.safetensors") == whole);
  }
}

TEST_F(SftLoraTest, DropoutOfAnAdapterIsToldOf) {
  ASSERT_TRUE(Run(1, false).ok());
  EXPECT_THAT(notes_, ::testing::Not(HasSubstr("dropout")));
  const std::string adapter = dir_ + "/adapter";
  std::filesystem::create_directories(adapter);
  for (const char* file : {"/adapter_config.json", "/adapter_model.safetensors"}) {
    std::filesystem::copy(Checkpoint(1) + file, adapter + file);
  }
  std::string text = ReadText(adapter + "/adapter_config.json");
  const std::string none = "\"lora_dropout\": 0.0";
  ASSERT_NE(text.find(none), std::string::npos) << text;
  text.replace(text.find(none), none.size(), "\"lora_dropout\": 0.1");
  WriteText(adapter + "/adapter_config.json", text);
  options_.model = adapter;
  options_.out = dir_ + "/dropout";
  Lora() = {};
  ASSERT_TRUE(Run(1, false).ok());
  EXPECT_THAT(notes_, HasSubstr("lora_dropout=0.1: this version trains adapters without"));
}

// They would not be in any checkpoint.
TEST_F(SftLoraTest, NoWeightIsTrainedBesideAdapters) {
  config_.engine.trainable_parameters = "*norm*,*.lora_*";
  EXPECT_THAT(ErrorOf(Run(1, false)), AllOf(HasSubstr("trains layers.input_layernorm.weight"),
                                            HasSubstr("name those, as *.lora_*")));
  config_.engine.trainable_parameters = "*.lora_B.*";
  const auto result = Run(1, false);
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST_F(SftLoraTest, SeedsDrawOtherAdapters) {
  std::set<std::string> drawn;
  for (const uint64_t seed : {1, 2, 1}) {
    config_.data.seed = seed;
    config_.data.shuffle = false;
    options_.out = dir_ + "/seed" + std::to_string(drawn.size());
    std::filesystem::remove_all(options_.out);
    ASSERT_TRUE(Run(1, false).ok());
    drawn.insert(ReadText(Checkpoint(1) + "/adapter_model.safetensors"));
  }
  EXPECT_EQ(drawn.size(), 2);
}

}  // namespace
}  // namespace mw::train
