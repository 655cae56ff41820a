// FwdBwdBatched and TrainStep against FwdBwd and Update, on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

// With SGD and a rate of 1 a weight moves by its gradient: Adam would hide a wrong scale.
EngineOptions SgdOptions() {
  EngineOptions options = TestOptions();
  options.optimizer.opt_type = "sgd";
  options.optimizer.sgd_momentum = 0.5;
  options.schedule.learning_rate = 1;
  return options;
}

class EntryPointsTest : public TinyEngineTest {
 protected:
  // Denominators 64, 16, 40 and 8, in rows of 64 tokens.
  std::vector<data::Batch> Ragged() const {
    std::vector<data::Batch> batches;
    for (int row = 0; row < 4; ++row) {
      batches.push_back(Rows({64, 16, 40, 8}, row, row + 1, 1, 64));
    }
    return batches;
  }
};

TEST_F(EntryPointsTest, ABatchedCallAccumulatesWhatSingleCallsDo) {
  for (const bool scan_layers : {true, false}) {
    EngineOptions options = SgdOptions();
    options.model.scan_layers = scan_layers;
    const auto single = Make(options);
    const auto batched = Make(options);
    for (int step = 0; step < 2; ++step) {
      for (const data::Batch& batch : Ragged()) Ok(single->FwdBwd(batch));
      Ok(batched->FwdBwdBatched(Ragged()));
      EXPECT_EQ(batched->num_micro_batches(), 4);
      const GradientReadout expected = *single->ReadGradients();
      const GradientReadout actual = *batched->ReadGradients();
      EXPECT_EQ(actual.loss.denominator(), 128);
      EXPECT_NEAR(actual.loss.Loss(), expected.loss.Loss(), 1e-6 * expected.loss.Loss());
      for (size_t i = 0; i < expected.gradients.size(); ++i) {
        EXPECT_LE(RelativeL2(actual.gradients[i], expected.gradients[i]), 1e-6)
            << single->params()[i].name;
      }
      // Half of the micro-batches have another gradient.
      if (step == 0) {
        const auto half = Make(options);
        for (const data::Batch& batch : {Ragged()[0], Ragged()[1]}) Ok(half->FwdBwd(batch));
        EXPECT_GT(RelativeL2(half->ReadGradients()->gradients[0], expected.gradients[0]), 1e-3);
      }
      Ok(single->Update());
      Ok(batched->Update());
      const StepMetrics a = Last(*batched), b = Last(*single);
      EXPECT_EQ(a.num_micro_batches, b.num_micro_batches);
      EXPECT_EQ(a.num_tokens, b.num_tokens);
      EXPECT_EQ(a.loss.denominator(), b.loss.denominator());
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-6 * b.grad_norm);
    }
    EXPECT_EQ(batched->programs().count("batched_kernel[4,1,64]"), 1u);
    EXPECT_EQ(batched->programs().size(), 2u);  // and update_kernel
  }
}

TEST_F(EntryPointsTest, ABatchedCallMayBeContinued) {
  const auto single = Make(SgdOptions());
  const auto batched = Make(SgdOptions());
  const std::vector<data::Batch> batches = Ragged();
  for (const data::Batch& batch : batches) Ok(single->FwdBwd(batch));
  Ok(batched->FwdBwdBatched({batches.data(), 3}));
  Ok(batched->FwdBwd(batches[3]));
  EXPECT_LE(MaxDifference(batched->ReadGradients()->gradients, single->ReadGradients()->gradients),
            1e-7);
}

TEST_F(EntryPointsTest, AFusedStepIsAStep) {
  const auto single = Make(SgdOptions());
  const auto fused = Make(SgdOptions());
  const std::vector<HostTensor> first = *fused->Params();
  for (const data::Batch& batch : Ragged()) {
    Ok(single->FwdBwd(batch));
    Ok(single->Update());
    Ok(fused->TrainStep(batch));
    const StepMetrics a = Last(*fused), b = Last(*single);
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.num_micro_batches, 1);
    EXPECT_EQ(a.num_tokens, b.num_tokens);
    EXPECT_EQ(a.loss.denominator(), b.loss.denominator());
    EXPECT_NEAR(a.Loss(), b.Loss(), 1e-6 * b.Loss());
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 2e-6 * b.grad_norm);
    EXPECT_EQ(a.learning_rate, b.learning_rate);
  }
  EXPECT_LE(MaxDifference(*fused->Params(), *single->Params()), 2e-6);
  EXPECT_GT(MaxDifference(*fused->Params(), first), 1e-3);
  const EngineState a = *fused->State(), b = *single->State();
  EXPECT_EQ(a.step, 4);
  EXPECT_FALSE(a.partial.has_value());
  for (const auto& [name, tensor] : b.tensors) {
    if (tensor.dtype() != DType::kF32) continue;
    EXPECT_LE(RelativeL2(a.tensors.at(name), tensor), 1e-5) << name;
  }
  EXPECT_EQ(fused->programs().size(), 1u);
  EXPECT_EQ(fused->compile_stats().num_recompilations, 0);
}

TEST_F(EntryPointsTest, AFusedStepIsSkippedWhole) {
  const auto engine = Make(SgdOptions());
  Ok(engine->TrainStep(Ragged()[0]));
  const auto before = *engine->Params();
  const EngineState state = *engine->State();
  Ok(engine->TrainStep(Rows({0}, 0, 1, 1, 64)));
  EXPECT_EQ(Last(*engine).skip_reason, SkipReason::kNoTokens);
  EXPECT_TRUE(SameBits(*engine->Params(), before));
  const EngineState after = *engine->State();
  for (const auto& [name, tensor] : after.tensors) {
    EXPECT_TRUE(SameBits({tensor}, {state.tensors.at(name)})) << name;
  }
}

// One program holds what two hold: weights and state in place, one set of accumulators.
TEST_F(EntryPointsTest, WeightsAndStateAreUpdatedInPlace) {
  const auto engine = Make(SgdOptions());
  Ok(engine->TrainStep(Ragged()[0]));
  int64_t bytes = 0;
  const auto params = *engine->Params();
  for (const HostTensor& tensor : params) {
    bytes += 2 * static_cast<int64_t>(tensor.num_bytes());  // and its momentum
  }
  EXPECT_GE(engine->MemoryStats()->at("train_step_kernel[1,64]").alias_bytes, bytes);
}

// A further micro-batch holds weights, accumulators and what the first one needs to work, also
// where a table is used twice: as embedding and, in a loop over chunks, as head.
TEST_F(EntryPointsTest, AFurtherMicroBatchNeedsNoMoreToWorkThanTheFirst) {
  for (const bool tied : {false, true}) {
    models::ModelConfig config = TinyConfig();
    config.vocab_size = 4096;
    config.tie_word_embeddings = tied;
    model_ = *models::CreateModel(config);
    EngineOptions options = SgdOptions();
    options.loss.head_chunk_tokens = 16;
    const auto engine = Make(options);
    Ok(engine->FwdBwd(Ragged()[0]));
    Ok(engine->FwdBwd(Ragged()[1]));
    const auto stats = *engine->MemoryStats();
    const auto& first = stats.at("first_kernel[1,64]");
    const auto& accum = stats.at("accum_kernel[1,64]");
    EXPECT_LE(accum.temp_bytes, first.temp_bytes + 1024) << "tied " << tied;
    EXPECT_LE(accum.LiveBytes(), first.LiveBytes() + 1024) << "tied " << tied;
  }
}

// An engine that did not wait would have all ten in flight.
TEST_F(EntryPointsTest, AtMostSoManyComputationsAreInFlight) {
  for (const int most : {1, 2, 5}) {
    EngineOptions options = SgdOptions();
    options.max_inflight_computations = most;
    const auto engine = Make(options);
    size_t reached = 0;
    for (int step = 0; step < 5; ++step) {
      Ok(engine->FwdBwd(Ragged()[0]));
      reached = std::max(reached, engine->num_in_flight());
      Ok(engine->Update());
      reached = std::max(reached, engine->num_in_flight());
    }
    EXPECT_EQ(reached, static_cast<size_t>(most));
    // Waiting for the device changes nothing of that.
    const size_t before = engine->num_in_flight();
    const auto waited = engine->WaitForDevice();
    ASSERT_TRUE(waited.ok()) << waited.status();
    EXPECT_GE(*waited, 0);
    EXPECT_EQ(engine->num_in_flight(), before);
    EXPECT_EQ((*engine->TakeMetrics(true)).size(), 5u);
    Ok(engine->WaitForAll());
    EXPECT_EQ(engine->num_in_flight(), 0u);
  }
}

// Two of them would hold both's temporaries: CPUs allocate at the dispatch.
TEST_F(EntryPointsTest, OnCpusALargeProgramIsDispatchedAlone) {
  models::ModelConfig config = TinyConfig();
  config.vocab_size = 1 << 17;
  model_ = *models::CreateModel(config);
  EngineOptions options = SgdOptions();
  options.max_inflight_computations = 5;
  const auto engine = Make(options);
  for (int step = 0; step < 3; ++step) {
    Ok(engine->FwdBwd(Ragged()[0]));
    EXPECT_EQ(engine->num_in_flight(), 1u);
    Ok(engine->Update());
    EXPECT_LE(engine->num_in_flight(), 2u);
  }
  const auto first = engine->MemoryStats()->at("first_kernel[1,64]");
  EXPECT_GT(first.temp_bytes + first.output_bytes, int64_t{64} << 20);
}

TEST_F(EntryPointsTest, RefusesWhatDoesNotFit) {
  const auto engine = Make(SgdOptions());
  const std::vector<data::Batch> batches = Ragged();
  const auto refusal = [](const absl::Status& status) {
    return status.ok() ? std::string("accepted") : std::string(status.message());
  };
  EXPECT_THAT(refusal(engine->FwdBwdBatched({})), HasSubstr("no batch"));
  EXPECT_THAT(refusal(engine->FwdBwdBatched(std::vector{batches[0], Rows(counts_, 0, 1)})),
              HasSubstr("batch 1 is 1 rows of 8 tokens and batch 0 is 1 of 64"));
  Ok(engine->FwdBwd(batches[0]));
  EXPECT_THAT(refusal(engine->FwdBwdBatched(batches)), HasSubstr("1 are accumulated already"));
  EXPECT_THAT(refusal(engine->TrainStep(batches[0])), HasSubstr("1 are accumulated already"));
  Ok(engine->Update());  // nothing was lost
  EXPECT_EQ(Last(*engine).loss.denominator(), 64);
}

}  // namespace
}  // namespace mw::train
