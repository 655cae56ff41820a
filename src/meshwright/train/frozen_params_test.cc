// Parameters that are not trained: nothing is computed or kept for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/train/losses_for_test.h"

namespace mw::train {
namespace {

int Count(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

class FrozenParamsTest : public TinyEngineTest {
 protected:
  FrozenParamsTest() {
    partial_ = std::make_unique<PartlyFrozenModel>(*models::CreateModel(TinyConfig()), "mlp.");
  }
  std::unique_ptr<Engine> MakePartial(const EngineOptions& options) {
    const auto client = TestClient("cpu");
    EXPECT_TRUE(client.ok()) << client.status();
    auto engine = Engine::Create(*client, SharedTestCache(), partial_.get(),
                                 RandomParams(*partial_, options), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }
  std::unique_ptr<models::Model> partial_;
};

TEST_F(FrozenParamsTest, TheOthersGetTheirGradientsAndMove) {
  for (const bool scan_layers : {true, false}) {
    EngineOptions options = TestOptions();
    options.gradient_clipping_threshold = 0;
    options.model.scan_layers = scan_layers;
    const auto whole = Make(options);
    const auto partial = MakePartial(options);
    for (int row = 0; row < 3; ++row) {
      Ok(whole->FwdBwd(Rows(counts_, row, row + 1)));
      Ok(partial->FwdBwd(Rows(counts_, row, row + 1)));
    }
    const auto trained = partial->trained_params();
    EXPECT_EQ(trained.size(), scan_layers ? 3u : 6u);
    const GradientReadout expected = *whole->ReadGradients();
    const GradientReadout actual = *partial->ReadGradients();
    EXPECT_EQ(actual.loss.Loss(), expected.loss.Loss());
    ASSERT_EQ(actual.gradients.size(), trained.size());
    double squares = 0;
    size_t next = 0;
    const auto before = *partial->Params();
    Ok(partial->Update());
    const auto after = *partial->Params();
    // Copies of some only, in the order that was asked for.
    const std::vector<size_t> some = {2, 0};
    EXPECT_TRUE(SameBits(*partial->Params(some), {after[2], after[0]}));
    for (size_t i = 0; i < before.size(); ++i) {
      if (!partial->params()[i].trainable) {
        EXPECT_TRUE(SameBits({after[i]}, {before[i]})) << partial->params()[i].name;
        continue;
      }
      EXPECT_FALSE(SameBits({after[i]}, {before[i]})) << partial->params()[i].name;
      EXPECT_LE(RelativeL2(actual.gradients[next], expected.gradients[i]), 1e-6);
      for (const float g : actual.gradients[next].as<float>()) squares += double{g} * g;
      ++next;
    }
    const StepMetrics metrics = Last(*partial);
    EXPECT_NEAR(metrics.grad_norm, std::sqrt(squares), 1e-6 * metrics.grad_norm);
    EXPECT_LT(metrics.grad_norm, expected.grad_norm);
    const EngineState state = *partial->State();
    for (const auto& [name, tensor] : state.tensors) {
      EXPECT_TRUE(name == "count" || name.find("mlp.") != std::string::npos) << name;
    }
  }
}

// Seven matrix products a layer forward; backward as many for the inputs, and of the weights'
// only the three of the MLP. Those of attention itself, of the head and rematerialization are
// the same in both.
TEST_F(FrozenParamsTest, NoProductMakesAGradientThatNobodyWants) {
  const auto whole = Make(TestOptions());
  const auto partial = MakePartial(TestOptions());
  for (Engine* engine : {whole.get(), partial.get()}) Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  const auto products = [](const Engine& engine) {
    return Count(engine.programs().at("first_kernel[2,8]")->stablehlo, "stablehlo.dot_general");
  };
  // q, k, v and o of the layer's body and the head.
  EXPECT_EQ(products(*whole) - products(*partial), 5);
}

TEST_F(FrozenParamsTest, EveryEntryPointAndACheckpointBetweenMicroBatches) {
  const EngineOptions options = TestOptions();
  const std::vector<data::Batch> batches = {Rows(counts_, 0, 1), Rows(counts_, 1, 2)};
  const auto single = MakePartial(options);
  const auto batched = MakePartial(options);
  const auto restored = MakePartial(options);
  Ok(single->FwdBwd(batches[0]));
  const EngineState middle = *single->State();
  ASSERT_EQ(middle.partial->accumulators.size(), 3u);
  Ok(restored->Restore(*single->Params(), middle));
  Ok(single->FwdBwd(batches[1]));
  Ok(restored->FwdBwd(batches[1]));
  Ok(batched->FwdBwdBatched(batches));
  for (Engine* engine : {single.get(), restored.get(), batched.get()}) Ok(engine->Update());
  EXPECT_TRUE(SameBits(*restored->Params(), *single->Params()));
  EXPECT_LE(MaxDifference(*batched->Params(), *single->Params()), 1e-5);
  Ok(single->FwdBwd(batches[0]));
  Ok(single->Update());
  Ok(batched->TrainStep(batches[0]));
  EXPECT_LE(MaxDifference(*batched->Params(), *single->Params()), 1e-4);
  EXPECT_NEAR(Last(*batched).Loss(), Last(*single).Loss(), 1e-5);

  EngineState foreign = middle;
  foreign.partial->accumulators["norm.weight"] = HostTensor::Zeros(DType::kF32, {16});
  EXPECT_THAT(std::string(restored->Restore(*single->Params(), foreign).message()),
              ::testing::HasSubstr("4 accumulators for 3 trained parameters"));
}

}  // namespace
}  // namespace mw::train
