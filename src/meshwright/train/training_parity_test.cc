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

  // Per Hugging Face tensor, the 2-norm of the difference to `kind`/NAME relative to
  // that of the stored values (less those of `start`, where given); the worst of all.
  double WorstError(const std::vector<nn::ParamSpec>& specs, const std::vector<HostTensor>& actual,
                    const std::string& kind, const std::vector<HostTensor>* start = nullptr) const {
    double worst = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto parts = static_cast<int64_t>(specs[i].hf_names.size());
      const int64_t n = actual[i].num_elements() / parts;
      for (int64_t part = 0; part < parts; ++part) {
        const HostTensor stored = Get(kind + "/" + specs[i].hf_names[static_cast<size_t>(part)]);
        // Larger tensors are stored as every 7th element.
        const int64_t stride = stored.num_elements() == n ? 1 : 7;
        EXPECT_EQ(stored.num_elements(), (n + stride - 1) / stride) << specs[i].name;
        double difference = 0;
        double size = 0;
        for (int64_t j = 0; j < stored.num_elements(); ++j) {
          const auto at = static_cast<size_t>(part * n + j * stride);
          const double expected = stored.as<float>()[static_cast<size_t>(j)];
          const double base = start == nullptr ? 0 : (*start)[i].as<float>()[at];
          difference += std::pow(actual[i].as<float>()[at] - expected, 2);
          size += std::pow(expected - base, 2);
        }
        EXPECT_GT(size, 0) << specs[i].name;
        const double error = std::sqrt(difference / size);
        worst = error <= worst ? worst : error;
      }
    }
    return worst;
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
