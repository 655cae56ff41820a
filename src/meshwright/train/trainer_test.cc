#include "meshwright/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "meshwright/train/engine.h"
#include "meshwright/train/losses_for_test.h"
#include "meshwright/train/model_files_for_test.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    static const TestDir cache;
    setenv("MW_CACHE_DIR", cache.File("").c_str(), /*overwrite=*/1);
    std::string pattern = ::testing::TempDir() + "trainer_XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    data_ = dir_ + "/data.jsonl";
    out_ = dir_ + "/out";
    std::ofstream file(data_);
    for (int row = 0; row < 24; ++row) {
      file << "{\"input_ids\": [";
      for (int t = 0; t < 6 + row % 9; ++t)
        file << (t > 0 ? ", " : "") << 3 + (row * 7 + t * 5) % 40;
      file << "]}\n";
    }
  }
  ~TrainerTest() override { fs::remove_all(dir_); }

  TrainerOptions Options(std::vector<std::string> more = {}) const {
    TrainerOptions options;
    options.model = "random:tiny-llama:3";
    options.out = out_;
    options.settings = {"batch_size=2", "max_target_length=16", "learning_rate=1e-2",
                        "lr_schedule=constant", "steps=20"};
    options.settings.insert(options.settings.end(), more.begin(), more.end());
    return options;
  }
  std::unique_ptr<Trainer> Make(const TrainerOptions& options) const {
    auto trainer = Trainer::Create(options);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    Ok((*trainer)->OpenData({data_}));
    return *std::move(trainer);
  }
  static void MicroBatch(Trainer& trainer) {
    const auto batch = trainer.NextBatch();
    ASSERT_TRUE(batch.ok()) << batch.status();
    Ok(trainer.FwdBwd(*batch));
  }
  static void Step(Trainer& trainer) {
    MicroBatch(trainer);
    MicroBatch(trainer);
    Ok(trainer.Update());
  }
  static bool SameWeights(const Trainer& a, const Trainer& b) {
    const auto mine = *a.Weights(), others = *b.Weights();
    if (mine.size() != others.size()) return false;
    for (const auto& [name, tensor] : mine) {
      if (!SameBits({tensor}, {others.at(name)})) return false;
    }
    return true;
  }
  static std::string Refusal(const absl::Status& status) {
    return status.ok() ? "accepted" : std::string(status.message());
  }

  std::string dir_;
  std::string data_;
  std::string out_;
};

TEST_F(TrainerTest, ARestoredRunGoesOnAsIfNothingHadBeen) {
  const auto straight = Make(Options());
  for (int i = 0; i < 3; ++i) Step(*straight);
  MicroBatch(*straight);
  Ok(straight->SaveCheckpoint({{"caller's", "own"}}));
  MicroBatch(*straight);
  Ok(straight->Update());
  Step(*straight);
  const auto expected = *straight->MetricsHistory();
  ASSERT_EQ(expected.size(), 5u);

  const auto resumed = Make(Options());
  Step(*resumed);  // to be forgotten, with its metrics
  const auto metadata = resumed->RestoreCheckpoint();
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  EXPECT_EQ(metadata->at("caller's"), "own");
  EXPECT_EQ(resumed->step(), 3);
  EXPECT_EQ(resumed->num_micro_batches(), 1);
  MicroBatch(*resumed);
  Ok(resumed->Update());
  Step(*resumed);
  EXPECT_TRUE(SameWeights(*resumed, *straight));
  const auto records = *resumed->MetricsHistory();
  ASSERT_EQ(records.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(records[i].step, expected[i + 3].step);
    for (const char* name : {"learning/loss", "learning/grad_norm", "learning/total_weights"}) {
      EXPECT_EQ(*records[i].Find(name), *expected[i + 3].Find(name)) << name;
    }
  }
}

TEST_F(TrainerTest, PublishedWeightsAreTheNewest) {
  const auto trainer = Make(Options());
  const auto before = *trainer->Weights();
  Step(*trainer);
  const auto after = *trainer->Weights();
  EXPECT_FALSE(SameBits({after.at("model.norm.weight")}, {before.at("model.norm.weight")}));
  Ok(trainer->SaveCheckpoint());
  // What is set is what is trained, read and saved from then on.
  Ok(trainer->SetWeights(before));
  EXPECT_EQ(trainer->step(), 1);
  const auto published = *trainer->Weights();
  for (const auto& [name, tensor] : published) {
    EXPECT_TRUE(SameBits({tensor}, {before.at(name)})) << name;
  }
  Ok(trainer->SaveCheckpoint());
  const auto reader = Make(Options());
  ASSERT_TRUE(reader->RestoreCheckpoint().ok());
  EXPECT_TRUE(SameWeights(*reader, *trainer));

  auto wrong = before;
  wrong.erase("model.norm.weight");
  EXPECT_THAT(Refusal(trainer->SetWeights(wrong)), HasSubstr("no tensor model.norm.weight"));
  wrong["model.norm.weight"] = HostTensor::Zeros(DType::kF32, {3});
  EXPECT_THAT(Refusal(trainer->SetWeights(wrong)), HasSubstr("model.norm.weight is f32[3]"));
  wrong = before;
  wrong["model.norms.weight"] = before.at("model.norm.weight");
  EXPECT_THAT(Refusal(trainer->SetWeights(wrong)), HasSubstr("no tensor model.norms.weight"));
  EXPECT_TRUE(SameWeights(*reader, *trainer));
  MicroBatch(*trainer);
  EXPECT_THAT(Refusal(trainer->SetWeights(before)), HasSubstr("1 micro-batches accumulated"));
}

TEST_F(TrainerTest, LossAndInputMayBeReplaced) {
  const auto trainer = Make(Options());
  Step(*trainer);
  int64_t num_mapped = 0;
  trainer->SetModelInput([&](data::Batch batch) -> absl::StatusOr<data::Batch> {
    ++num_mapped;
    return Enriched(std::move(batch), 32);
  });
  struct Scaled : Loss {
    std::vector<MetricSpec> metrics() const override { return {{.name = "loss"}}; }
    std::vector<BatchTensorSpec> batch_tensors() const override {
      return {{"row_weights", DType::kF32, /*per_token=*/false}};
    }
    std::vector<LossStateSpec> state() const override {
      return {{"seen", HostTensor::Zeros(DType::kS32, {})}};
    }
    LossResult Build(const LossInputs& in) const override {
      LossResult result;
      const auto sum = ops::ReduceSum(ops::Mul(in.loss_mask_BT, in.LogProbs().log_prob), {0, 1});
      result.metrics = {{ops::Mul(sum, -3.0), ops::ReduceSum(in.loss_mask_BT, {0, 1})}};
      result.state["seen"] = ops::Add(in.state.at("seen"), 1.0);
      return result;
    }
  };
  const data::Batch batch = *trainer->NextBatch();
  const double plain = trainer->EvalStep(batch)->Loss();
  Ok(trainer->SetLoss(std::make_shared<Scaled>()));
  EXPECT_EQ(trainer->step(), 1);
  EXPECT_NEAR(trainer->EvalStep(batch)->Loss(), 3 * plain, 1e-5 * plain);
  Step(*trainer);
  EXPECT_EQ(num_mapped, 4);
  EXPECT_EQ(trainer->engine().State()->tensors.at("loss.seen").as<int32_t>()[0], 2);
  Ok(trainer->SetLoss(nullptr));
  EXPECT_FALSE(trainer->engine().State()->tensors.contains("loss.seen"));
  Step(*trainer);
  EXPECT_EQ((*trainer->MetricsHistory()).size(), 3u);
  trainer->SetModelInput([](data::Batch) -> absl::StatusOr<data::Batch> {
    return absl::InvalidArgumentError("the map's own words");
  });
  EXPECT_THAT(Refusal(trainer->FwdBwd(batch)), HasSubstr("the map's own words"));
}

TEST_F(TrainerTest, EveryEntryPointTrainsAlike) {
  const auto single = Make(Options());
  const auto other = Make(Options());
  std::vector<data::Batch> batches;
  for (int i = 0; i < 2; ++i) batches.push_back(*single->NextBatch());
  Ok(other->Compile(batches[0]));
  for (const data::Batch& batch : batches) Ok(single->FwdBwd(batch));
  Ok(single->Update());
  Ok(other->FwdBwdBatched(batches));
  Ok(other->Update());
  Ok(single->FwdBwd(batches[0]));
  Ok(single->Update());
  Ok(other->TrainStep(batches[0]));
  const auto a = *single->MetricsHistory(true), b = *other->MetricsHistory(true);
  ASSERT_EQ(a.size(), 2u);
  ASSERT_EQ(b.size(), 2u);
  EXPECT_NEAR(*a[1].Find("learning/loss"), *b[1].Find("learning/loss"), 1e-4);
  EXPECT_TRUE((*single->MetricsHistory()).empty());
  EXPECT_FALSE(single->Metrics()->has_value());
}

TEST_F(TrainerTest, PreparedInputsAreMappedAndTrainAlike) {
  int num_mapped = 0;
  const auto mapped = [&](data::Batch batch) -> absl::StatusOr<data::Batch> {
    ++num_mapped;
    HostTensor mask = HostTensor::Zeros(DType::kF32, batch.loss_mask.dims());
    std::ranges::transform(batch.loss_mask.as<float>(), mask.mutable_as<float>().begin(),
                           [](float weight) { return 0.5f * weight; });
    batch.loss_mask = mask;
    return batch;
  };
  TrainerOptions options = Options();
  options.model_input = mapped;
  const auto plain = Make(options);
  for (int i = 0; i < 3; ++i) Step(*plain);
  const auto staged = Make(options);
  num_mapped = 0;
  for (int step = 0; step < 3; ++step) {
    MicroBatch(*staged);
    auto input = staged->PrepareFwdBwdInput(*staged->NextBatch());
    ASSERT_TRUE(input.ok()) << input.status();
    Ok(staged->FwdBwd(*input));
    Ok(staged->Update());
  }
  EXPECT_EQ(num_mapped, 6);
  EXPECT_TRUE(SameWeights(*staged, *plain));

  // What was prepared for another loss is not trained on.
  auto input = staged->PrepareFwdBwdInput(*staged->NextBatch());
  ASSERT_TRUE(input.ok()) << input.status();
  Ok(staged->SetLoss(nullptr));
  EXPECT_THAT(Refusal(staged->FwdBwd(*input)), HasSubstr("before its loss was replaced"));
  EXPECT_EQ(staged->num_micro_batches(), 0);
}

TEST_F(TrainerTest, TheHistoryKeeps128Steps) {
  std::vector<std::string> notes;
  TrainerOptions options = Options();
  options.note = [&](std::string_view note) { notes.emplace_back(note); };
  const auto trainer = Make(options);
  const data::Batch batch = *trainer->NextBatch();
  for (int i = 0; i < 140; ++i) Ok(trainer->TrainStep(batch));
  const auto records = *trainer->MetricsHistory();
  ASSERT_EQ(records.size(), 128u);
  EXPECT_EQ(records.front().step, 13);
  EXPECT_EQ((*trainer->Metrics())->step, 140);
  const auto evictions = std::ranges::count_if(
      notes, [](const std::string& note) { return note.find("leave the history") != note.npos; });
  EXPECT_EQ(evictions, 1);
}

TEST_F(TrainerTest, NothingIsWrittenWhereNothingIsWanted) {
  const auto trainer = Make(Options({"enable_checkpointing=false"}));
  Step(*trainer);
  Ok(trainer->SaveCheckpoint());
  Ok(trainer->Close());
  EXPECT_FALSE(fs::exists(out_));

  const auto periodic = Make(Options({"checkpoint_period=2"}));
  for (int i = 0; i < 3; ++i) {
    Step(*periodic);
    Ok(periodic->SaveCheckpoint({}, /*force=*/false));
  }
  EXPECT_FALSE(fs::exists(out_ + "/checkpoints/1"));
  EXPECT_TRUE(fs::exists(out_ + "/checkpoints/2"));
  EXPECT_FALSE(fs::exists(out_ + "/checkpoints/3"));
}

TEST_F(TrainerTest, AdaptersAreSavedAndRestoredAsSuch) {
  const std::vector<std::string> lora = {"lora.rank=2", "lora.target_modules=q_proj,down_proj"};
  const auto straight = Make(Options(lora));
  Step(*straight);
  Ok(straight->SaveCheckpoint());
  Step(*straight);
  const std::string checkpoint = out_ + "/checkpoints/1";
  EXPECT_TRUE(fs::exists(checkpoint + "/adapter_model.safetensors"));
  EXPECT_FALSE(fs::exists(checkpoint + "/model.safetensors"));

  const auto resumed = Make(Options(lora));
  const auto restored = resumed->RestoreCheckpoint();
  ASSERT_TRUE(restored.ok()) << restored.status();
  Step(*resumed);
  EXPECT_TRUE(SameWeights(*resumed, *straight));

  // As a model it keeps its adapter, and goes on without being told of it.
  TrainerOptions options = Options();
  options.model = checkpoint;
  const auto further = Make(options);
  EXPECT_TRUE(further->Weights()->contains(
      "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));
  EXPECT_TRUE(further->RestoreCheckpoint().ok());

  EXPECT_THAT(Refusal(Make(Options())->RestoreCheckpoint().status()),
              HasSubstr("is of adapters, and this Trainer trains a whole model: create it with"));
  EXPECT_THAT(Refusal(Make(Options({"lora.rank=3", lora[1]}))->RestoreCheckpoint().status()),
              HasSubstr("has lora.rank=2"));
  options = Options(lora);
  options.model = "random:tiny-llama:4";
  EXPECT_THAT(Refusal(Make(options)->RestoreCheckpoint().status()),
              HasSubstr("is not the one that the adapter"));
  fs::remove_all(out_);
  const auto whole = Make(Options());
  Step(*whole);
  Ok(whole->SaveCheckpoint());
  EXPECT_THAT(
      Refusal(Make(Options(lora))->RestoreCheckpoint().status()),
      HasSubstr("is of a whole model, and this Trainer trains adapters: create it without"));
}

TEST_F(TrainerTest, RefusesWhatCannotBe) {
  TrainerOptions options = Options({"learning_rat=1"});
  EXPECT_THAT(Refusal(Trainer::Create(options).status()), HasSubstr("learning_rate"));
  options = Options({"gradient_accumulation_steps=4"});
  EXPECT_THAT(Refusal(Trainer::Create(options).status()),
              HasSubstr("gradient_accumulation_steps=4 is a setting of the loop"));
  options = Options({"loss.name=grpo", "num_generations=4"});
  EXPECT_THAT(Refusal(Trainer::Create(options).status()),
              HasSubstr("num_generations=4 is a setting of the loop of `meshwright grpo`"));
  options = Options();
  options.model = "random:tiny-lama";
  EXPECT_THAT(Refusal(Trainer::Create(options).status()), HasSubstr("tiny-llama"));
  options = Options();
  options.out = "";
  const auto trainer = *Trainer::Create(options);
  EXPECT_THAT(Refusal(trainer->NextBatch().status()), HasSubstr("call OpenData"));
  EXPECT_THAT(Refusal(trainer->Update()), HasSubstr("nothing accumulated"));
  EXPECT_THAT(Refusal(trainer->SaveCheckpoint()), HasSubstr("TrainerOptions::out"));
  EXPECT_THAT(Refusal(trainer->RestoreCheckpoint().status()), HasSubstr("TrainerOptions::out"));

  const auto sgd = Make(Options({"opt_type=sgd"}));
  EXPECT_THAT(Refusal(sgd->RestoreCheckpoint().status()), HasSubstr("no checkpoint to restore"));
  EXPECT_EQ(sgd->RestoreCheckpoint(7).status().code(), absl::StatusCode::kNotFound);
  Step(*sgd);
  Ok(sgd->SaveCheckpoint());
  const auto adam = Make(Options());
  Step(*adam);
  const auto before = *adam->Weights();
  EXPECT_THAT(Refusal(adam->RestoreCheckpoint().status()), HasSubstr("no tensor m."));
  // Nothing has changed.
  EXPECT_EQ(adam->step(), 1);
  EXPECT_TRUE(
      SameBits({(*adam->Weights()).at("model.norm.weight")}, {before.at("model.norm.weight")}));
  Step(*adam);
  fs::resize_file(out_ + "/checkpoints/1/model.safetensors", 1000);
  EXPECT_EQ(adam->RestoreCheckpoint().status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace mw::train
