#include "meshwright/train/step_flops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/models/presets.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

StepFlops Flops(const models::ModelConfig& config, bool scan_layers = true,
                const std::string& trainable = "") {
  EngineOptions options;
  options.model.scan_layers = scan_layers;
  if (!trainable.empty()) options.trainable_parameters = trainable;
  const auto model = *models::CreateModel(config);
  return StepFlops(config, *StepParams::Create(*model, options));
}

// By hand: per layer q, k, v, o and three of the MLP; the head once, tied or not; the embedding
// table never.
TEST(StepFlopsTest, CountsWhatTokensAreMultipliedWith) {
  for (const bool scan_layers : {true, false}) {
    const StepFlops llama = Flops(TinyConfig(), scan_layers);
    EXPECT_EQ(llama.products, 6 * (2 * (16 * 16 + 2 * 8 * 16 + 16 * 16 + 3 * 24 * 16) + 32 * 16));
    EXPECT_EQ(llama.products, 26112);
    EXPECT_EQ(llama.attention, 12 * 2 * 2 * 8);
    const StepFlops tied = Flops(MeshConfig("qwen3"), scan_layers);
    EXPECT_EQ(tied.products, 159744);
    EXPECT_EQ(tied.attention, 1536);
  }
  const StepFlops smollm = Flops(*models::LoadPreset("smollm2-135m"));
  EXPECT_EQ(smollm.products, 806879232);
  EXPECT_EQ(smollm.attention, 207360);
}

TEST(StepFlopsTest, AFrozenMatrixNeedsNoGradientOfItsOwn) {
  EXPECT_EQ(Flops(TinyConfig(), true, "*mlp*").products, 6 * 2304 + 4 * (3840 - 2304 + 512));
}

TEST(StepFlopsTest, DocumentsSeeThemselvesAndPaddingNothing) {
  data::Batch batch;
  batch.segment_ids =
      HostTensor::From<int32_t>(DType::kS32, {2, 4}, std::vector<int32_t>{1, 1, 1, 2, 1, 1, 0, 0});
  batch.positions =
      HostTensor::From<int32_t>(DType::kS32, {2, 4}, std::vector<int32_t>{0, 1, 2, 0, 0, 1, 0, 0});
  EXPECT_EQ(NumAttendedPairs(batch), 6 + 1 + 3);
  StepFlops flops;
  flops.products = 100;
  flops.attention = 7;
  EXPECT_EQ(flops.Of(6, 10), 670);
}

class StepFlopsMetricTest : public TinyEngineTest {};

TEST_F(StepFlopsMetricTest, AStepTellsItsThroughputAndUtilization) {
  EngineOptions options = TestOptions();
  options.device_peak_tflops = 0.5;
  const auto engine = Make(options);
  for (int row = 0; row < 2; ++row) Ok(engine->FwdBwd(Rows(counts_, row, row + 1)));
  Ok(engine->Update());
  const StepMetrics step = Last(*engine);
  // Sixteen tokens in two documents of eight.
  EXPECT_EQ(step.flops, 26112.0 * 16 + 384.0 * 2 * 36);
  const MetricRecord record = step.ToRecord();
  const double tflops = *record.Find("perf/tflops_per_second");
  EXPECT_NEAR(tflops, 1e-12 * step.flops / step.step_time_s, 1e-9 * tflops);
  EXPECT_DOUBLE_EQ(*record.Find("perf/mfu"), 2 * tflops);
  Ok(engine->TrainStep(Rows(counts_, 0, 1)));
  EXPECT_EQ(Last(*engine).flops, 26112.0 * 8 + 384.0 * 36);
}

}  // namespace
}  // namespace mw::train
