#include "meshwright/train/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/models/registry.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {
namespace {

constexpr int64_t kTokens = 8;

models::ModelConfig TinyConfig() {
  models::ModelConfig c;
  c.family = "llama";
  c.vocab_size = 32;
  c.hidden_size = 16;
  c.num_layers = 2;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 8;
  c.mlp_size = 24;
  c.max_position = 64;
  return c;
}

EngineOptions TestOptions() {
  EngineOptions o;
  o.model.matmul_precision = "highest";
  o.schedule.lr_schedule = "constant";
  o.schedule.learning_rate = 1e-2;
  o.schedule.total_steps = 10;
  o.loss.head_chunk_tokens = 0;
  return o;
}

std::vector<HostTensor> RandomParams(const models::Model& model, const EngineOptions& options) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.2f);
  std::vector<HostTensor> params;
  for (const nn::ParamSpec& spec : model.Params(options.model)) {
    HostTensor t = HostTensor::Empty(DType::kF32, spec.dims);
    for (float& x : t.mutable_as<float>()) {
      x = spec.init.kind == nn::Init::Kind::kOnes ? 1.0f : normal(random);
    }
    params.push_back(t.ConvertTo(options.weight_dtype));
  }
  return params;
}

// Rows [begin, end) of a fixed batch; row r learns counts[r] tokens, each weighing `weight`.
data::Batch Rows(const std::vector<int>& counts, int begin, int end, float weight = 1) {
  const int64_t rows = end - begin;
  data::Batch b;
  b.tokens = HostTensor::Zeros(DType::kS32, {rows, kTokens});
  b.targets = HostTensor::Zeros(DType::kS32, {rows, kTokens});
  b.loss_mask = HostTensor::Zeros(DType::kF32, {rows, kTokens});
  b.segment_ids = HostTensor::Zeros(DType::kS32, {rows, kTokens});
  b.positions = HostTensor::Zeros(DType::kS32, {rows, kTokens});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < kTokens; ++t) {
      const int64_t i = r * kTokens + t;
      const int64_t row = begin + r;
      b.tokens.mutable_as<int32_t>()[i] = static_cast<int32_t>((row * 11 + t * 7 + 3) % 32);
      b.targets.mutable_as<int32_t>()[i] = static_cast<int32_t>((row * 11 + t * 7 + 10) % 32);
      b.loss_mask.mutable_as<float>()[i] = t < counts[row] ? weight : 0;
      b.segment_ids.mutable_as<int32_t>()[i] = 1;
      b.positions.mutable_as<int32_t>()[i] = static_cast<int32_t>(t);
    }
  }
  b.num_tokens = rows * kTokens;
  return b;
}

bool SameBits(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].num_bytes() != b[i].num_bytes() ||
        std::memcmp(a[i].bytes(), b[i].bytes(), a[i].num_bytes()) != 0) {
      return false;
    }
  }
  return true;
}

double MaxDifference(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (int64_t j = 0; j < a[i].num_elements(); ++j) {
      const double d = std::abs(a[i].as<float>()[j] - b[i].as<float>()[j]);
      worst = d <= worst ? worst : d;
    }
  }
  return worst;
}

class EngineTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Make(const EngineOptions& options) {
    auto client = TestClient("cpu");
    EXPECT_TRUE(client.ok()) << client.status();
    auto engine =
        Engine::Create(*client, nullptr, model_.get(), RandomParams(*model_, options), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  std::unique_ptr<models::Model> model_ = *models::CreateModel(TinyConfig());
  const std::vector<int> counts_ = {8, 2, 5, 1};
};

void Ok(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }

StepMetrics Last(Engine& engine) {
  auto metrics = engine.TakeMetrics(true);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_FALSE(metrics->empty());
  return metrics->back();
}

TEST_F(EngineTest, AnySplitGivesTheSameGradient) {
  const auto engine = Make(TestOptions());
  Ok(engine->FwdBwd(Rows(counts_, 0, 4)));
  const GradientReadout whole = *engine->ReadGradients();
  EXPECT_EQ(whole.denominator, 16);
  engine->ClearGradients();
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  Ok(engine->FwdBwd(Rows(counts_, 2, 3)));
  Ok(engine->FwdBwd(Rows(counts_, 3, 4)));
  const GradientReadout split = *engine->ReadGradients();
  EXPECT_EQ(split.denominator, 16);
  EXPECT_NEAR(split.loss, whole.loss, 1e-5 * whole.loss);
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
  EXPECT_EQ(quarter.denominator, 0.5);
  EXPECT_NEAR(quarter.loss, one.loss, 1e-6 * one.loss);
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
  for (const auto& [name, tensor] : state.tensors) {
    EXPECT_TRUE(SameBits({tensor}, {after.tensors.at(name)})) << name;
  }
  // An ordinary step does change them.
  Ok(engine->FwdBwd(Rows(counts_, 0, 1)));
  Ok(engine->Update());
  EXPECT_FALSE(SameBits(*engine->Params(), before));
}

TEST_F(EngineTest, ANonFiniteGradientIsSkipped) {
  const auto engine = Make(TestOptions());
  data::Batch bad = Rows(counts_, 0, 1);
  bad.loss_mask.mutable_as<float>()[0] = std::numeric_limits<float>::infinity();
  const auto before = *engine->Params();
  Ok(engine->FwdBwd(bad));
  Ok(engine->Update());
  EXPECT_EQ(Last(*engine).skip_reason, SkipReason::kNonFinite);
  EXPECT_TRUE(SameBits(*engine->Params(), before));
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
  const uintptr_t before = *engine->DeviceParams()[0].UnsafePointer();
  for (int i = 0; i < 4; ++i) {
    Ok(engine->FwdBwd(Rows(counts_, i, i + 1)));
    Ok(engine->Update());
  }
  Ok(engine->WaitForAll());
  EXPECT_EQ(*engine->DeviceParams()[0].UnsafePointer(), before);
  EXPECT_EQ(engine->compile_stats().num_programs, 2);
  Ok(engine->FwdBwd(Rows(counts_, 0, 2)));
  EXPECT_EQ(engine->compile_stats().num_recompilations, 1);
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

}  // namespace
}  // namespace mw::train
