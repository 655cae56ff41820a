// What the engine tells of a step of which some micro-batches are accumulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

using ::testing::ElementsAre;

class PartialStepTest : public TinyEngineTest {
 protected:
  static constexpr int64_t kLength = 64;
  const std::vector<int> ragged_ = {64, 16, 40, 0, 8};

  data::Batch Row(int row) const { return Rows(ragged_, row, row + 1, 1, kLength); }
  static std::vector<double> Denominators(const PartialStep& partial) {
    std::vector<double> denominators;
    for (const MicroBatchSums& each : partial.micro_batches) {
      denominators.push_back(each.denominator);
    }
    return denominators;
  }
};

TEST_F(PartialStepTest, TellsWhatEachMicroBatchAdded) {
  const auto engine = Make(TestOptions());
  std::vector<double> alone;
  for (const int row : {0, 1, 2, 3}) alone.push_back(engine->EvalStep(Row(row))->loss.sum());
  for (const int row : {0, 1, 2, 3}) Ok(engine->FwdBwd(Row(row)));
  const PartialStep partial = *engine->State()->partial;
  EXPECT_THAT(Denominators(partial), ElementsAre(64, 16, 40, 0));
  EXPECT_EQ(partial.denominator(), 120);
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) {
    // The sum so far is a float of up to 2^9.
    EXPECT_NEAR(partial.micro_batches[i].loss_sum, alone[i], 1e-4) << i;
    sum += partial.micro_batches[i].loss_sum;
  }
  EXPECT_EQ(partial.micro_batches[3].loss_sum, 0);
  // Bit for bit what is divided.
  EXPECT_EQ(static_cast<float>(sum), partial.sums.as<float>()[0]);

  // The next step begins with none.
  Ok(engine->Update());
  EXPECT_FALSE(engine->State()->partial.has_value());
  Ok(engine->FwdBwd(Row(4)));
  EXPECT_THAT(Denominators(*engine->State()->partial), ElementsAre(8));
  engine->ClearGradients();
  Ok(engine->FwdBwdBatched(std::vector<data::Batch>{Row(1), Row(2)}));
  EXPECT_THAT(Denominators(*engine->State()->partial), ElementsAre(56));
}

TEST_F(PartialStepTest, ARestoredOneGoesOnTelling) {
  const auto straight = Make(TestOptions());
  const auto restored = Make(TestOptions());
  Ok(straight->FwdBwd(Row(0)));
  Ok(straight->FwdBwd(Row(1)));
  EngineState state = *straight->State();
  const std::vector<HostTensor> params = *straight->Params();
  Ok(restored->Restore(params, state));
  EXPECT_THAT(Denominators(*restored->State()->partial), ElementsAre(64, 16));
  for (Engine* engine : {straight.get(), restored.get()}) Ok(engine->FwdBwd(Row(2)));
  // Twice restored.
  Ok(restored->Restore(params, *restored->State()));
  for (Engine* engine : {straight.get(), restored.get()}) Ok(engine->FwdBwd(Row(4)));
  const PartialStep a = *straight->State()->partial;
  const PartialStep b = *restored->State()->partial;
  EXPECT_THAT(Denominators(a), ElementsAre(64, 16, 40, 8));
  ASSERT_EQ(b.micro_batches.size(), a.micro_batches.size());
  for (size_t i = 0; i < a.micro_batches.size(); ++i) {
    EXPECT_EQ(b.micro_batches[i].denominator, a.micro_batches[i].denominator);
    EXPECT_EQ(b.micro_batches[i].loss_sum, a.micro_batches[i].loss_sum);
  }

  // Without those of before, they are one.
  state.partial->micro_batches.clear();
  Ok(restored->Restore(params, state));
  Ok(restored->FwdBwd(Row(2)));
  EXPECT_THAT(Denominators(*restored->State()->partial), ElementsAre(80, 40));
}

}  // namespace
}  // namespace mw::train
