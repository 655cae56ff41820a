// LoRA against peft and torch (tests/oracle/lora.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/batch_file.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/step_params.h"
#include "meshwright/train/stored_error_for_test.h"
#include "meshwright/train/test_cache.h"

namespace mw::train {
namespace {

constexpr char kData[] = MW_SOURCE_DIR "/src/meshwright/train/testdata/";
constexpr int kSteps = 10;

// The model and whether its layers are scanned.
class LoraParityTest : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  void SetUp() override {
    name_ = std::get<0>(GetParam());
    auto model = OpenModel(std::string(kData) + "lora-" + name_, TinyModel(name_));
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::move(*model);
    auto batch = ReadBatchFile(std::string(kData) + "training.safetensors", model_.config,
                               /*require_targets=*/true);
    ASSERT_TRUE(batch.ok()) << batch.status();
    batch_ = batch->batch;
    config_.engine.model.scan_layers = std::get<1>(GetParam());
    config_.engine.model.matmul_precision = "highest";
    config_.engine.schedule.lr_schedule = "constant";
    config_.engine.schedule.learning_rate = 1e-2;
    config_.steps = kSteps;
    ASSERT_TRUE(config_.Finish().ok());
  }

  HostTensor Get(const std::string& name) const {
    auto tensor = reference_->Read(name_ + "/" + name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *tensor;
  }

  std::unique_ptr<Engine> Make() const {
    auto client = TestClient("cpu");
    EXPECT_TRUE(client.ok()) << client.status();
    auto engine = MakeEngine(*client, SharedTestCache(), model_, config_, false);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  // The worst of the adapters' errors.
  double WorstError(const std::vector<nn::ParamSpec>& specs, const std::vector<HostTensor>& actual,
                    const std::string& kind, const std::vector<HostTensor>* start = nullptr) const {
    std::vector<size_t> adapters;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].adapter) adapters.push_back(i);
    }
    std::vector<HostTensor> adapters_start;
    if (start != nullptr) adapters_start = Pick(*start, adapters);
    return WorstStoredError(
        Pick(specs, adapters), Pick(actual, adapters),
        [&](const std::string& name) { return Get(kind + "/" + name); },
        start == nullptr ? nullptr : &adapters_start);
  }

  std::string name_;
  OpenedModel model_;
  data::Batch batch_;
  TrainConfig config_;
  std::shared_ptr<io::SafetensorsFile> reference_ =
      *io::SafetensorsFile::Open(std::string(kData) + "lora.safetensors");
};

TEST_P(LoraParityTest, GradientsAreTorchs) {
  const auto engine = Make();
  ASSERT_TRUE(engine->FwdBwd(batch_).ok());
  const auto readout = engine->ReadGradients();
  ASSERT_TRUE(readout.ok()) << readout.status();
  const double loss = Get("loss").as<float>()[0];
  EXPECT_NEAR(readout->loss.Loss(), loss, 1e-6 * loss);
  EXPECT_LE(WorstError(engine->trained_params(), readout->gradients, "gradient"), 2e-5);
}

TEST_P(LoraParityTest, AScaleOfAlphaAloneIsSeen) {
  model_.adapter->lora.alpha *= model_.adapter->lora.scale();
  const auto engine = Make();
  ASSERT_TRUE(engine->FwdBwd(batch_).ok());
  EXPECT_GT(WorstError(engine->trained_params(), engine->ReadGradients()->gradients, "gradient"),
            1e-2);
}

TEST_P(LoraParityTest, TenStepsOfAdamWLeaveTheBaseAlone) {
  const auto engine = Make();
  const auto start = engine->Params();
  ASSERT_TRUE(start.ok()) << start.status();
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(engine->FwdBwd(batch_).ok());
    ASSERT_TRUE(engine->Update().ok());
  }
  const auto metrics = engine->TakeMetrics(true);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  const HostTensor losses = Get("losses");
  const HostTensor norms = Get("norms");
  ASSERT_EQ(metrics->size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < metrics->size(); ++i) {
    EXPECT_NEAR((*metrics)[i].Loss(), losses.as<float>()[i], 1e-4 * losses.as<float>()[i]) << i;
    EXPECT_NEAR((*metrics)[i].grad_norm, norms.as<float>()[i], 1e-3 * norms.as<float>()[i]) << i;
  }
  const auto after = engine->Params();
  ASSERT_TRUE(after.ok()) << after.status();
  const std::vector<nn::ParamSpec>& specs = engine->params();
  EXPECT_LE(WorstError(specs, *after, "after", &*start), 1e-3);
  EXPECT_GT(WorstError(specs, *start, "after", &*start), 0.9);
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(BytesOf((*after)[i]) == BytesOf((*start)[i]), !specs[i].adapter) << specs[i].name;
  }
  // The optimizer knows of the adapters only.
  const auto state = engine->State();
  ASSERT_TRUE(state.ok()) << state.status();
  size_t moments = 0;
  for (const auto& [tensor, value] : state->tensors) {
    if (tensor.starts_with("m.") || tensor.starts_with("v.")) {
      EXPECT_THAT(tensor, ::testing::HasSubstr(".lora_"));
      ++moments;
    }
  }
  EXPECT_EQ(moments,
            2 * static_cast<size_t>(std::ranges::count_if(specs, &nn::ParamSpec::adapter)));
}

TEST_P(LoraParityTest, MergedWeightsArePefts) {
  models::ModelOptions options;
  options.scan_layers = false;
  ASSERT_TRUE(TakeAdapter(model_, &options.lora).ok());
  const auto specs = model_.model->Params(options);
  const TensorReader read = MergedReader(model_, specs);
  int compared = 0;
  const std::string prefix = name_ + "/merged/";
  for (const std::string& key : reference_->names()) {
    if (!key.starts_with(prefix)) continue;
    EXPECT_LE(StoredError(*read(key.substr(prefix.size())), *reference_->Read(key)), 1e-6) << key;
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<int>(options.lora.Targets().size()));
}

INSTANTIATE_TEST_SUITE_P(
    Families, LoraParityTest,
    ::testing::Combine(::testing::Values("tiny-llama", "tiny-qwen3"), ::testing::Bool()),
    [](const auto& info) {
      return std::string(std::get<0>(info.param) == std::string("tiny-llama") ? "Llama" : "Qwen3") +
             (std::get<1>(info.param) ? "Scanned" : "Unrolled");
    });

}  // namespace
}  // namespace mw::train
