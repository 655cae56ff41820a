// Gradients and training steps of the tiny models against torch (tests/oracle/training.py).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/batch_file.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/stored_error_for_test.h"
#include "meshwright/train/test_cache.h"

namespace mw::train {
namespace {

constexpr char kReference[] = MW_SOURCE_DIR "/src/meshwright/train/testdata/training.safetensors";
constexpr int kSteps = 10;

class TrainingParityTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto model = OpenModel(TinyModel(GetParam()));
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::move(*model);
    auto batch = ReadBatchFile(kReference, model_.config, /*require_targets=*/true);
    ASSERT_TRUE(batch.ok()) << batch.status();
    batch_ = batch->batch;
    config_.engine.model.matmul_precision = "highest";
    config_.engine.schedule.lr_schedule = "constant";
    config_.engine.schedule.learning_rate = 1e-2;
    config_.steps = kSteps;
    ASSERT_TRUE(config_.Finish().ok());
  }

  HostTensor Get(const std::string& name) const {
    auto tensor = reference_->Read(std::string(GetParam()) + "/" + name);
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

  double WorstError(const std::vector<nn::ParamSpec>& specs, const std::vector<HostTensor>& actual,
                    const std::string& kind, const std::vector<HostTensor>* start = nullptr) const {
    return WorstStoredError(
        specs, actual, [&](const std::string& name) { return Get(kind + "/" + name); }, start);
  }

  OpenedModel model_;
  data::Batch batch_;
  TrainConfig config_;
  std::shared_ptr<io::SafetensorsFile> reference_ = *io::SafetensorsFile::Open(kReference);
};

TEST_P(TrainingParityTest, GradientWithZLoss) {
  for (const double z_loss : {0.01, 0.0}) {
    config_.engine.loss.z_loss = z_loss;
    const auto engine = Make();
    ASSERT_TRUE(engine->FwdBwd(batch_).ok());
    const auto readout = engine->ReadGradients();
    ASSERT_TRUE(readout.ok()) << readout.status();
    const double loss = Get("loss").as<float>()[0];
    const double error = WorstError(engine->params(), readout->gradients, "gradient");
    if (z_loss == 0.01) {
      EXPECT_NEAR(readout->loss.Loss(), loss, 1e-6 * loss);
      EXPECT_EQ(readout->loss.denominator(), 20);
      EXPECT_LE(error, 1e-5);
    } else {  // its absence is seen
      EXPECT_GT(std::abs(readout->loss.Loss() - loss), 1e-4 * loss);
      EXPECT_GT(error, 1e-4);
    }
  }
}

TEST_P(TrainingParityTest, TenStepsOfAdamWWithClipping) {
  for (const bool split : {false, true}) {
    const auto engine = Make();
    const auto start = engine->Params();
    ASSERT_TRUE(start.ok()) << start.status();
    const std::vector<data::Batch> batches =
        SplitBatch(batch_, split ? std::vector<int64_t>{2, 1, 1} : std::vector<int64_t>{4});
    for (int step = 0; step < kSteps; ++step) {
      for (const data::Batch& batch : batches) ASSERT_TRUE(engine->FwdBwd(batch).ok());
      ASSERT_TRUE(engine->Update().ok());
    }
    const auto metrics = engine->TakeMetrics(true);
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    const HostTensor losses = Get("losses");
    const HostTensor norms = Get("norms");
    ASSERT_EQ(metrics->size(), static_cast<size_t>(kSteps));
    for (size_t i = 0; i < metrics->size(); ++i) {
      EXPECT_NEAR((*metrics)[i].Loss(), losses.as<float>()[i], 1e-3 * losses.as<float>()[i]) << i;
      EXPECT_NEAR((*metrics)[i].grad_norm, norms.as<float>()[i], 1e-3 * norms.as<float>()[i]) << i;
    }
    const auto after = engine->Params();
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_LE(WorstError(engine->params(), *after, "after", &*start), 1e-3) << split;
    EXPECT_GT(WorstError(engine->params(), *start, "after", &*start), 0.9);
  }
}

TEST_P(TrainingParityTest, WithoutClippingTheWeightsDiffer) {
  config_.engine.gradient_clipping_threshold = 0;
  const auto engine = Make();
  const auto start = engine->Params();
  ASSERT_TRUE(start.ok()) << start.status();
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(engine->FwdBwd(batch_).ok());
    ASSERT_TRUE(engine->Update().ok());
  }
  EXPECT_GT(WorstError(engine->params(), *engine->Params(), "after", &*start), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Families, TrainingParityTest,
                         ::testing::Values("tiny-llama", "tiny-qwen3"), [](const auto& info) {
                           return std::string(info.param) == "tiny-llama" ? "Llama" : "Qwen3";
                         });

}  // namespace
}  // namespace mw::train
