#include "meshwright/train/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "meshwright/train/step_programs.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

class EngineTest : public TinyEngineTest {};

void ExpectSameTensors(const EngineState& a, const EngineState& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    EXPECT_TRUE(SameBits({tensor}, {b.tensors.at(name)})) << name;
  }
}

TEST_F(EngineTest, AnySplitGivesTheSameGradient) {
  const auto engine = Make(TestOptions());
  Ok(engine->FwdBwd(Rows(counts_, 0, 4)));
  const GradientReadout whole = *engine->ReadGradients();
  EXPECT_EQ(whole.loss.denominator(), 16);
  engine->ClearGradients();
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  Ok(engine->FwdBwd(Rows(counts_, 2, 3)));
  Ok(engine->FwdBwd(Rows(counts_, 3, 4)));
  const GradientReadout split = *engine->ReadGradients();
  EXPECT_EQ(split.loss.denominator(), 16);
  EXPECT_NEAR(split.loss.Loss(), whole.loss.Loss(), 1e-5 * whole.loss.Loss());
  EXPECT_LT(MaxDifference(split.gradients, whole.gradients), 1e-6);
  // The wrong normalization is far beyond that tolerance.
  engine->ClearGradients();
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  EXPECT_GT(MaxDifference(engine->ReadGradients()->gradients, whole.gradients), 1e-3);
}

TEST_F(EngineTest, FractionalWeightsAreNotClamped) {
  const auto engine = Make(TestOptions());
  Ok(engine->FwdBwd(Rows({2}, 0, 1, 1.0f)));
  const GradientReadout one = *engine->ReadGradients();
  engine->ClearGradients();
  Ok(engine->FwdBwd(Rows({2}, 0, 1, 0.25f)));
  const GradientReadout quarter = *engine->ReadGradients();
  EXPECT_EQ(quarter.loss.denominator(), 0.5);
  EXPECT_NEAR(quarter.loss.Loss(), one.loss.Loss(), 1e-6 * one.loss.Loss());
  EXPECT_LT(MaxDifference(quarter.gradients, one.gradients), 1e-6);
}

TEST_F(EngineTest, AStepWithoutTokensChangesNothing) {
  const auto engine = Make(TestOptions());
  Ok(engine->FwdBwd(Rows(counts_, 0, 1)));
  Ok(engine->Update());
  const auto before = *engine->Params();
  const EngineState state = *engine->State();
  Ok(engine->FwdBwd(Rows({0}, 0, 1)));
  Ok(engine->Update());
  const StepMetrics metrics = Last(*engine);
  EXPECT_EQ(metrics.skip_reason, SkipReason::kNoTokens);
  EXPECT_EQ(metrics.Loss(), 0);
  EXPECT_EQ(metrics.num_skipped_steps, 1);
  EXPECT_EQ(metrics.optimizer_count, 1);
  EXPECT_TRUE(SameBits(*engine->Params(), before));
  const EngineState after = *engine->State();
  EXPECT_EQ(after.step, 2);
  ExpectSameTensors(after, state);
  // An ordinary step does change them.
  Ok(engine->FwdBwd(Rows(counts_, 0, 1)));
  Ok(engine->Update());
  EXPECT_FALSE(SameBits(*engine->Params(), before));
}

TEST_F(EngineTest, APartialStepContinuesBitForBit) {
  const EngineOptions options = TestOptions();
  const auto engine = Make(options);
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  const auto params = *engine->Params();
  const EngineState state = *engine->State();
  ASSERT_TRUE(state.partial.has_value());
  EXPECT_EQ(state.partial->num_micro_batches, 1);
  EXPECT_EQ(state.partial->num_tokens, 2 * kTokens);
  const auto finish = [&](Engine& each) {
    Ok(each.FwdBwd(Rows(counts_, 2, 4)));
    Ok(each.Update());
    return Last(each);
  };
  const StepMetrics straight = finish(*engine);
  const auto client = TestClient("cpu");
  ASSERT_TRUE(client.ok());
  const auto created =
      Engine::Create(*client, SharedTestCache(), model_.get(), params, options, &state);
  ASSERT_TRUE(created.ok()) << created.status();
  const auto restored = Make(options);
  Ok(restored->FwdBwd(Rows(counts_, 2, 4)));  // to be forgotten
  Ok(restored->Restore(params, state));
  for (Engine* each : {created->get(), restored.get()}) {
    EXPECT_EQ(each->num_micro_batches(), 1);
    const StepMetrics metrics = finish(*each);
    EXPECT_EQ(metrics.num_micro_batches, 2);
    EXPECT_EQ(metrics.num_tokens, straight.num_tokens);
    EXPECT_EQ(metrics.loss.sum(), straight.loss.sum());
    EXPECT_EQ(metrics.loss.denominator(), straight.loss.denominator());
    EXPECT_TRUE(SameBits(*each->Params(), *engine->Params()));
    ExpectSameTensors(*each->State(), *engine->State());
  }

  EngineState lacking = state;
  lacking.partial->accumulators.erase(lacking.partial->accumulators.begin());
  const absl::Status refused = restored->Restore(params, lacking);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("has no accumulator of "));
  EXPECT_TRUE(SameBits(*restored->Params(), *engine->Params()));
}

TEST_F(EngineTest, CreateTakesTheStateOfAnother) {
  const EngineOptions options = TestOptions();
  const auto engine = Make(options);
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  Ok(engine->Update());
  const auto params = *engine->Params();
  const EngineState state = *engine->State();
  auto client = TestClient("cpu");
  ASSERT_TRUE(client.ok());
  const auto create = [&](const EngineState& with) {
    return Engine::Create(*client, SharedTestCache(), model_.get(), params, options, &with);
  };
  const auto other = create(state);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->step(), 1);
  ExpectSameTensors(*(*other)->State(), state);
  for (Engine* each : {engine.get(), other->get()}) {
    Ok(each->FwdBwd(Rows(counts_, 2, 4)));
    Ok(each->Update());
  }
  EXPECT_TRUE(SameBits(*engine->Params(), *(*other)->Params()));
  ExpectSameTensors(*engine->State(), *(*other)->State());

  EngineState lacking = state;
  lacking.tensors.erase("count");
  EXPECT_EQ(create(lacking).status().code(), absl::StatusCode::kInvalidArgument);
  lacking = state;
  lacking.num_skipped_steps = 2;
  EXPECT_EQ(create(lacking).status().code(), absl::StatusCode::kInvalidArgument);
}

// Each optimizer, with slots of every shape that it has.
std::vector<OptimizerOptions> AllOptimizers() {
  std::vector<OptimizerOptions> all;
  for (const std::string& opt_type : OptimizerNames()) {
    OptimizerOptions options;
    options.opt_type = opt_type;
    options.sgd_momentum = 0.5;
    options.adafactor_min_dim_size_to_factor = 16;
    options.adafactor_momentum = 0.5;
    all.push_back(options);
  }
  return all;
}

TEST_F(EngineTest, ANonFiniteGradientMovesNothing) {
  for (const OptimizerOptions& optimizer : AllOptimizers()) {
    EngineOptions options = TestOptions();
    options.optimizer = optimizer;
    const auto engine = Make(options);
    Ok(engine->FwdBwd(Rows(counts_, 1, 2)));
    Ok(engine->Update());
    const auto before = *engine->Params();
    const EngineState state = *engine->State();
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      data::Batch batch = Rows(counts_, 0, 1);
      batch.loss_mask.mutable_as<float>()[0] = bad;
      Ok(engine->FwdBwd(batch));
      Ok(engine->Update());
      const StepMetrics metrics = Last(*engine);
      EXPECT_EQ(metrics.skip_reason, SkipReason::kNonFinite) << bad << optimizer.opt_type;
      EXPECT_EQ(metrics.optimizer_count, 1);
      EXPECT_TRUE(SameBits(*engine->Params(), before)) << optimizer.opt_type;
      ExpectSameTensors(*engine->State(), state);
    }
    EXPECT_EQ(engine->State()->num_skipped_steps, 2);
    Ok(engine->FwdBwd(Rows(counts_, 1, 2)));
    Ok(engine->Update());
    EXPECT_FALSE(SameBits(*engine->Params(), before)) << optimizer.opt_type;
  }
}

// A weight that overflows makes a gradient that is not finite out of a sound batch.
TEST_F(EngineTest, AnOverflowIsSkippedUnlessAskedFor) {
  for (const bool skip : {true, false}) {
    EngineOptions options = TestOptions();
    options.skip_step_on_nonfinite = skip;
    const auto engine = Make(options);
    auto params = *engine->Params();
    const EngineState state = *engine->State();
    params[0].mutable_as<float>()[3 * 16] = std::numeric_limits<float>::infinity();
    Ok(engine->Restore(params, state));
    Ok(engine->FwdBwd(Rows(counts_, 0, 1)));
    Ok(engine->Update());
    EXPECT_EQ(Last(*engine).skip_reason, skip ? SkipReason::kNonFinite : SkipReason::kNone);
    EXPECT_EQ(SameBits(*engine->Params(), params), skip);
  }
}

TEST_F(EngineTest, ASpikeMovesNothingButIsRemembered) {
  std::vector<std::pair<OptimizerOptions, bool>> cases = {{OptimizerOptions(), false}};
  for (const OptimizerOptions& optimizer : AllOptimizers()) cases.emplace_back(optimizer, true);
  for (const auto& [optimizer, skip] : cases) {
    SCOPED_TRACE(optimizer.opt_type);
    EngineOptions options = TestOptions();
    options.optimizer = optimizer;
    options.schedule.learning_rate = 1e-5;
    options.skip_step_on_spikes = skip;
    options.skip_step_interval = 4;
    const auto engine = Make(options);
    // The rows of the lowest and the highest loss.
    std::array<double, 4> losses{};
    for (int row = 0; row < 4; ++row) {
      losses[static_cast<size_t>(row)] = engine->EvalStep(Rows(counts_, row, row + 1))->Loss();
    }
    const auto [low, high] = std::minmax_element(losses.begin(), losses.end());
    ASSERT_GT(*high, 1.05 * *low);
    const int calm = static_cast<int>(low - losses.begin());
    const int wild = static_cast<int>(high - losses.begin());
    for (int step = 0; step < 3; ++step) {
      Ok(engine->FwdBwd(Rows(counts_, calm, calm + 1)));
      Ok(engine->Update());
      EXPECT_EQ(Last(*engine).skip_reason, SkipReason::kNone) << step;
    }
    const auto before = *engine->Params();
    EngineState state = *engine->State();
    Ok(engine->FwdBwd(Rows(counts_, wild, wild + 1)));
    Ok(engine->Update());
    const StepMetrics metrics = Last(*engine);
    EXPECT_EQ(metrics.skip_reason, skip ? SkipReason::kSpike : SkipReason::kNone);
    EXPECT_EQ(metrics.optimizer_count, skip ? 3 : 4);
    EXPECT_EQ(SameBits(*engine->Params(), before), skip);
    if (!skip) continue;
    EngineState after = *engine->State();
    EXPECT_EQ(after.tensors.at("history_count").as<int32_t>()[0], 4);
    EXPECT_FLOAT_EQ(after.tensors.at("history").as<float>()[3], static_cast<float>(metrics.Loss()));
    for (EngineState* s : {&state, &after}) {
      s->tensors.erase("history");
      s->tensors.erase("history_count");
    }
    ExpectSameTensors(after, state);
    // Training goes on.
    Ok(engine->FwdBwd(Rows(counts_, calm, calm + 1)));
    Ok(engine->Update());
    EXPECT_EQ(Last(*engine).skip_reason, SkipReason::kNone);
    EXPECT_FALSE(SameBits(*engine->Params(), before));
  }
}

TEST_F(EngineTest, UpdateWithNothingAccumulatedIsAnError) {
  const auto engine = Make(TestOptions());
  EXPECT_EQ(engine->Update().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine->step(), 0);
}

TEST_F(EngineTest, WeightsAreUpdatedInPlaceAndNothingIsCompiledTwice) {
  const auto engine = Make(TestOptions());
  Ok(engine->Compile(Rows(counts_, 0, 1)));
  EXPECT_EQ(engine->compile_stats().num_programs, 2);
  const uintptr_t before = *engine->DeviceParams()[0]->UnsafePointer();
  for (int i = 0; i < 4; ++i) {
    Ok(engine->FwdBwd(Rows(counts_, i, i + 1)));
    Ok(engine->Update());
  }
  Ok(engine->WaitForAll());
  EXPECT_EQ(*engine->DeviceParams()[0]->UnsafePointer(), before);
  EXPECT_EQ(engine->compile_stats().num_programs, 2);
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  EXPECT_EQ(engine->compile_stats().num_recompilations, 1);
}

TEST_F(EngineTest, TheCompilerIsToldItsFlags) {
  EngineOptions options = TestOptions();
  options.target.compiler_flags = "xla_cpu_enable_fast_math=false";
  Ok(Make(options)->Compile(Rows(counts_, 0, 1)));
  options.target.compiler_flags = "xla_no_such_flag=1";
  EXPECT_THAT(Make(options)->Compile(Rows(counts_, 0, 1)).message(), HasSubstr("xla_no_such_flag"));
  options.target.compiler_flags = "xla_no_such_flag";
  EXPECT_THAT(options.Validate().message(), HasSubstr("is not NAME=VALUE"));
}

TEST_F(EngineTest, SgdFollowsTheGradientReadOut) {
  EngineOptions options = TestOptions();
  options.optimizer.opt_type = "sgd";
  options.gradient_clipping_threshold = 0.01;
  const auto engine = Make(options);
  const auto before = *engine->Params();
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  const GradientReadout g = *engine->ReadGradients();
  Ok(engine->Update());
  const StepMetrics metrics = Last(*engine);
  EXPECT_NEAR(metrics.grad_norm, g.grad_norm, 1e-5 * g.grad_norm);
  ASSERT_GT(g.grad_norm, 0.01);
  EXPECT_FLOAT_EQ(static_cast<float>(metrics.clipped_grad_norm), 0.01f);
  const auto after = *engine->Params();
  std::vector<HostTensor> expected;
  for (size_t i = 0; i < before.size(); ++i) {
    HostTensor t = HostTensor::Empty(DType::kF32, before[i].dims());
    for (int64_t j = 0; j < t.num_elements(); ++j) {
      t.mutable_as<float>()[j] =
          before[i].as<float>()[j] -
          static_cast<float>(1e-2 * 0.01 / g.grad_norm * g.gradients[i].as<float>()[j]);
    }
    expected.push_back(t);
  }
  EXPECT_LT(MaxDifference(after, expected), 2e-7);
}

TEST_F(EngineTest, RestoringContinuesBitForBit) {
  const auto straight = Make(TestOptions());
  const auto step = [&](Engine& engine, int i) {
    Ok(engine.FwdBwd(Rows(counts_, i % 4, i % 4 + 1)));
    Ok(engine.FwdBwd(Rows(counts_, (i + 1) % 4, (i + 1) % 4 + 1)));
    Ok(engine.Update());
  };
  for (int i = 0; i < 6; ++i) step(*straight, i);
  auto resumed = Make(TestOptions());
  for (int i = 0; i < 6; ++i) {
    if (i == 2 || i == 4) {
      const EngineState state = *resumed->State();
      auto params = *resumed->Params();
      resumed = Make(TestOptions());
      Ok(resumed->Restore(std::move(params), state));
    }
    step(*resumed, i);
  }
  EXPECT_EQ(resumed->step(), 6);
  EXPECT_TRUE(SameBits(*straight->Params(), *resumed->Params()));
  // Without the optimizer's state the weights differ.
  EngineState zero = *straight->State();
  EXPECT_EQ(zero.tensors.at("count").as<int32_t>()[0], 6);
  zero.tensors.erase("count");
  EXPECT_THAT(std::string(resumed->Restore(*straight->Params(), zero).message()),
              ::testing::HasSubstr("count"));
}

TEST_F(EngineTest, AccumulatorsOfBfloat16WeightsAreFloat32) {
  EngineOptions options = TestOptions();
  options.weight_dtype = DType::kBF16;
  for (const auto& program : {*BuildFirstKernel(*model_, options, {1, kTokens}),
                              *BuildAccumKernel(*model_, options, {1, kTokens})}) {
    for (const compile::ProgramOutput& output : program.outputs) {
      EXPECT_EQ(output.type.dtype, DType::kF32) << program.name << " " << output.name;
    }
  }
  const auto engine = Make(options);
  Ok(engine->FwdBwd(Rows(counts_, 0, 1)));
  Ok(engine->Update());
  EXPECT_EQ(Last(*engine).skip_reason, SkipReason::kNone);
}

// Micro-batches of 64, 16, 40 and 8 tokens, and one with none.
TEST_F(EngineTest, RaggedMicroBatchesWeighTheirTokens) {
  constexpr int64_t kLength = 64;
  const std::vector<int> counts = {64, 16, 40, 8, 0};
  const auto engine = Make(TestOptions());
  Ok(engine->FwdBwd(Rows(counts, 0, 4, 1, kLength)));
  const GradientReadout whole = *engine->ReadGradients();
  EXPECT_EQ(whole.loss.denominator(), 128);
  engine->ClearGradients();
  std::vector<HostTensor> mean_of_means;
  for (const HostTensor& g : whole.gradients) {
    mean_of_means.push_back(HostTensor::Zeros(DType::kF32, g.dims()));
  }
  for (int row = 0; row < 4; ++row) {
    Ok(engine->FwdBwd(Rows(counts, row, row + 1, 1, kLength)));
    const GradientReadout part = *engine->ReadGradients();
    engine->ClearGradients();
    EXPECT_EQ(part.loss.denominator(), counts[static_cast<size_t>(row)]);
    for (size_t i = 0; i < part.gradients.size(); ++i) {
      for (int64_t j = 0; j < part.gradients[i].num_elements(); ++j) {
        mean_of_means[i].mutable_as<float>()[j] += 0.25f * part.gradients[i].as<float>()[j];
      }
    }
  }
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {4, 3, 2, 4, 1, 0}}) {
    for (const int row : order) Ok(engine->FwdBwd(Rows(counts, row, row + 1, 1, kLength)));
    const GradientReadout split = *engine->ReadGradients();
    engine->ClearGradients();
    EXPECT_EQ(split.loss.denominator(), 128);
    EXPECT_NEAR(split.loss.Loss(), whole.loss.Loss(), 1e-6 * whole.loss.Loss());
    EXPECT_LT(MaxDifference(split.gradients, whole.gradients), 1e-6);
  }
  EXPECT_GT(MaxDifference(mean_of_means, whole.gradients), 1e-3);
}

// 1 + 256 * 2^-9 is 1.5, but 1 where the sum is kept in bfloat16.
TEST_F(EngineTest, SmallGradientsOfBfloat16WeightsAreNotLost) {
  EngineOptions options = TestOptions();
  options.weight_dtype = DType::kBF16;
  const auto engine = Make(options);
  Ok(engine->FwdBwd(Rows(counts_, 0, 1)));
  const GradientReadout one = *engine->ReadGradients();
  const data::Batch small = Rows(counts_, 0, 1, 0x1p-9f);
  for (int i = 0; i < 256; ++i) Ok(engine->FwdBwd(small));
  const GradientReadout all = *engine->ReadGradients();
  EXPECT_EQ(all.loss.denominator(), 1.5 * one.loss.denominator());
  for (size_t i = 0; i < one.gradients.size(); ++i) {
    double largest = 0;
    for (const float g : one.gradients[i].as<float>()) {
      largest = std::max(largest, std::abs(static_cast<double>(g)));
    }
    EXPECT_GT(largest, 0);
    EXPECT_LT(MaxDifference({all.gradients[i]}, {one.gradients[i]}), 1e-5 * largest) << i;
  }
}

TEST_F(EngineTest, ASecondStartCompilesNothing) {
  const TestDir dir;
  const auto run = [&](const EngineOptions& options, std::vector<HostTensor>* params) {
    const auto cache = OpenCacheForTest(dir.File("executables"));
    const auto engine = Make(options, cache.get());
    Ok(engine->Compile(Rows(counts_, 0, 1)));
    Ok(engine->FwdBwd(Rows(counts_, 0, 1)));
    Ok(engine->FwdBwd(Rows(counts_, 1, 2)));
    Ok(engine->Update());
    EXPECT_GT(engine->EvalStep(Rows(counts_, 2, 3))->Loss(), 0);
    *params = *engine->Params();
    const CompileStats stats = engine->compile_stats();
    EXPECT_EQ(stats.num_programs, 4);
    EXPECT_EQ(Last(*engine).num_compilations, stats.num_compilations);
    return stats.num_compilations;
  };
  std::vector<HostTensor> first;
  std::vector<HostTensor> second;
  EXPECT_EQ(run(TestOptions(), &first), 4);
  EXPECT_EQ(run(TestOptions(), &second), 0);
  EXPECT_TRUE(SameBits(first, second));
  // Another optimizer setting is another update, and no other program.
  EngineOptions other = TestOptions();
  other.optimizer.adam_b2 = 0.99;
  EXPECT_EQ(run(other, &second), 1);
}

TEST_F(EngineTest, EvaluationSeesTheNewestWeightsAndDisturbsNothing) {
  EngineOptions options = TestOptions();
  options.loss.z_loss = 0.01;
  const auto engine = Make(options);
  const data::Batch batch = Rows(counts_, 0, 2);
  const EvalMetrics before = *engine->EvalStep(batch);
  EXPECT_EQ(before.loss.denominator(), 10);
  EXPECT_EQ(before.num_tokens, 16);
  EXPECT_NEAR(before.Loss(), *before.loss.Nll() + 0.01 * *before.loss.Find("z_loss"),
              1e-6 * before.Loss());
  Ok(engine->FwdBwd(batch));
  const GradientReadout alone = *engine->ReadGradients();
  EXPECT_NEAR(alone.loss.Loss(), before.Loss(), 1e-6 * alone.loss.Loss());
  EXPECT_NEAR(*alone.loss.Nll(), *before.loss.Nll(), 1e-6 * *alone.loss.Nll());
  EXPECT_EQ(engine->EvalStep(Rows(counts_, 2, 4))->loss.denominator(), 6);
  EXPECT_TRUE(SameBits(engine->ReadGradients()->gradients, alone.gradients));
  EXPECT_EQ(engine->num_micro_batches(), 1);
  Ok(engine->Update());
  EXPECT_LT(engine->EvalStep(batch)->Loss(), before.Loss());
}

TEST_F(EngineTest, AClosedEngineSaysSo) {
  const auto engine = Make(TestOptions());
  Ok(engine->FwdBwd(Rows(counts_, 0, 1)));
  Ok(engine->Update());
  Ok(engine->FwdBwd(Rows(counts_, 0, 1)));
  Ok(engine->Close());
  for (const absl::Status& status :
       {engine->FwdBwd(Rows(counts_, 0, 1)), engine->Update(), engine->TakeMetrics(true).status(),
        engine->Params().status(), engine->State().status(),
        engine->EvalStep(Rows(counts_, 0, 1)).status(), engine->ReadGradients().status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("closed"));
  }
}

TEST_F(EngineTest, BatchesThatDoNotFitAreRefusedWithTheTensor) {
  const auto engine = Make(TestOptions());
  data::Batch batch = Rows(counts_, 0, 2);
  batch.positions = HostTensor::Zeros(DType::kS32, {2, kTokens - 1});
  EXPECT_THAT(std::string(engine->FwdBwd(batch).message()), ::testing::HasSubstr("positions"));
  batch = Rows(counts_, 0, 2);
  batch.loss_mask = HostTensor::Zeros(DType::kS32, {2, kTokens});
  EXPECT_THAT(std::string(engine->FwdBwd(batch).message()), ::testing::HasSubstr("loss_mask"));
  batch.tokens = HostTensor::Zeros(DType::kS32, {2});
  EXPECT_EQ(engine->FwdBwd(batch).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->num_micro_batches(), 0);
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
}

}  // namespace
}  // namespace mw::train
