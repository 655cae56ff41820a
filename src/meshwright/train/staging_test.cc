// Micro-batches that are on the devices before they are trained on: engine.md E-22.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/train/staging_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

class StagingTest : public TinyEngineTest {
 protected:
  std::vector<std::vector<data::Batch>> Steps() const {
    return {{Rows(counts_, 0, 2), Rows(counts_, 2, 4)},
            {Rows(counts_, 1, 3), Rows(counts_, 0, 2)},
            {Rows(counts_, 2, 4)},
            {Rows(counts_, 0, 2), Rows(counts_, 1, 3), Rows(counts_, 2, 4)}};
  }
  static std::string Refusal(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }
};

TEST_F(StagingTest, EveryOrderGivesTheSameBits) {
  const auto plain = Make(TestOptions());
  const StagedRun expected = TrainStaged(*plain, Steps(), StagingOrder::kPlain, false);
  EXPECT_EQ(expected.num_programs, 3);  // first, accum, update
  for (const StagingOrder order : kStagingOrders) {
    for (const bool waits : {false, true}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(order) << waits);
      const auto engine = Make(TestOptions());
      ExpectSameRun(TrainStaged(*engine, Steps(), order, waits), expected);
    }
  }
  // Were another micro-batch staged, it would be seen.
  auto steps = Steps();
  std::swap(steps[1][0], steps[2][0]);
  const auto other = Make(TestOptions());
  EXPECT_FALSE(SameBits(TrainStaged(*other, steps, StagingOrder::kAfterUpdate, false).params,
                        expected.params));
}

TEST_F(StagingTest, PreparingChangesNothingInTheEngine) {
  const auto engine = Make(TestOptions());
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  Ok(engine->Update());
  Ok(engine->FwdBwd(Rows(counts_, 2, 4)));
  const auto look = [&] {
    return std::tuple(engine->step(), engine->num_micro_batches(), engine->num_in_flight(),
                      engine->compile_stats().num_programs);
  };
  const auto before = look();
  const auto params = *engine->Params();
  const GradientReadout gradients = *engine->ReadGradients();
  // Another shape too: it is compiled for when it is trained on, not when it is moved.
  auto same = engine->PrepareFwdBwdInput(Rows(counts_, 0, 2));
  auto further = engine->PrepareFwdBwdInput(Rows(counts_, 0, 1));
  ASSERT_TRUE(same.ok() && further.ok()) << same.status() << further.status();
  EXPECT_EQ(look(), before);
  EXPECT_TRUE(SameBits(*engine->Params(), params));
  EXPECT_TRUE(SameBits(engine->ReadGradients()->gradients, gradients.gradients));
  EXPECT_EQ(engine->State()->partial->num_tokens, 2 * kTokens);
  Ok(engine->FwdBwd(*further));
  EXPECT_EQ(engine->compile_stats().num_recompilations, 1);
  EXPECT_EQ(engine->num_micro_batches(), 2);
  // What was prepared and is never used costs nothing but its memory.
  *same = PreparedInput();
  EXPECT_TRUE(same->empty());
}

TEST_F(StagingTest, WaitForDeviceTouchesNeitherQueueNorMetrics) {
  EngineOptions options = TestOptions();
  options.max_inflight_computations = 4;
  const auto engine = Make(options);
  for (int i = 0; i < 2; ++i) {
    Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
    Ok(engine->Update());
  }
  ASSERT_EQ(engine->num_in_flight(), 4u);
  const auto input = engine->PrepareFwdBwdInput(Rows(counts_, 2, 4));
  ASSERT_TRUE(input.ok()) << input.status();
  const auto waited = engine->WaitForDevice();
  ASSERT_TRUE(waited.ok()) << waited.status();
  EXPECT_GE(*waited, 0);
  EXPECT_EQ(engine->num_in_flight(), 4u);
  EXPECT_FALSE(input->empty());
  // Both steps' metrics are still to be taken, once.
  const auto metrics = engine->TakeMetrics(true);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->size(), 2u);
  EXPECT_TRUE(engine->TakeMetrics(true)->empty());
  EXPECT_EQ(engine->num_in_flight(), 4u);
  // Waiting for all does empty the queue.
  Ok(engine->WaitForAll());
  EXPECT_EQ(engine->num_in_flight(), 0u);
}

TEST_F(StagingTest, APreparedInputSurvivesARestore) {
  const auto engine = Make(TestOptions());
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  Ok(engine->Update());
  const auto params = *engine->Params();
  const EngineState state = *engine->State();
  auto input = engine->PrepareFwdBwdInput(Rows(counts_, 2, 4));
  ASSERT_TRUE(input.ok()) << input.status();
  Ok(engine->FwdBwd(Rows(counts_, 1, 3)));  // to be forgotten
  Ok(engine->Restore(params, state));
  Ok(engine->FwdBwd(*input));
  Ok(engine->Update());
  const auto other = Make(TestOptions());
  Ok(other->Restore(params, state));
  Ok(other->FwdBwd(Rows(counts_, 2, 4)));
  Ok(other->Update());
  EXPECT_TRUE(SameBits(*engine->Params(), *other->Params()));
}

TEST_F(StagingTest, RefusesWhatIsNotItsOwn) {
  const auto engine = Make(TestOptions());
  const auto other = Make(TestOptions());
  auto input = engine->PrepareFwdBwdInput(Rows(counts_, 0, 2));
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_THAT(Refusal(other->FwdBwd(*input)), HasSubstr("another engine prepared"));
  EXPECT_EQ(other->num_micro_batches(), 0);
  Ok(engine->FwdBwd(*input));  // nothing was lost
  EXPECT_THAT(Refusal(engine->FwdBwd(*input)), HasSubstr("taken already"));
  PreparedInput empty;
  EXPECT_THAT(Refusal(engine->FwdBwd(empty)), HasSubstr("taken already"));
  EXPECT_EQ(engine->num_micro_batches(), 1);

  data::Batch bad = Rows(counts_, 0, 2);
  bad.positions = HostTensor::Zeros(DType::kS32, {2, kTokens - 1});
  const auto refused = engine->PrepareFwdBwdInput(bad);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("positions"));
  Ok(engine->Close());
  EXPECT_THAT(Refusal(engine->PrepareFwdBwdInput(Rows(counts_, 0, 2)).status()),
              HasSubstr("closed"));
}

}  // namespace
}  // namespace mw::train
