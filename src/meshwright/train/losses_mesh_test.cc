// DPO, distillation, policy gradients and scores on meshes: what one device gets.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "meshwright/train/mesh_engine_for_test.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

constexpr int64_t kTopK = 3;

struct Layout {
  const char* name;
  const char* mesh;
  const char* rules;
  int num_shards;  // of a batch's rows
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class LossesMeshTest : public ::testing::TestWithParam<Layout> {
 protected:
  std::unique_ptr<Engine> Make(const LossOptions& loss, const Layout* layout) {
    EngineOptions options = TestOptions();
    options.optimizer.opt_type = "sgd";
    options.loss = loss;
    if (layout != nullptr) {
      MeshSettings settings;
      settings.mesh = layout->mesh;
      settings.custom_mesh_and_rule = layout->rules;
      options.mesh = *settings.Resolve(0);
    }
    return MakeMeshEngine(*model_, options);
  }

  // Of a pair in the middle one row has no token, so that devices count different pairs.
  static data::Batch Batch() {
    data::Batch batch = Rows({8, 2, 5, 0, 1, 7, 8, 3}, 0, 8);
    const Dims dims = batch.tokens.dims();
    HostTensor reference = HostTensor::Empty(DType::kF32, dims);
    HostTensor advantages = HostTensor::Empty(DType::kF32, {dims[0]});
    for (int64_t row = 0; row < dims[0]; ++row) {
      advantages.mutable_as<float>()[row] = std::cos(static_cast<float>(row));
    }
    HostTensor old = HostTensor::Empty(DType::kF32, dims);
    HostTensor ids = HostTensor::Empty(DType::kS32, {dims[0], dims[1], kTopK});
    HostTensor log_probs = HostTensor::Empty(DType::kF32, ids.dims());
    for (int64_t i = 0; i < reference.num_elements(); ++i) {
      reference.mutable_as<float>()[i] = -4 + std::sin(0.7f * static_cast<float>(i));
      old.mutable_as<float>()[i] = -4 + 0.5f * std::sin(0.3f * static_cast<float>(i));
      for (int64_t k = 0; k < kTopK; ++k) {
        // All over the vocabulary, so that each device holds some of them.
        ids.mutable_as<int32_t>()[i * kTopK + k] = static_cast<int32_t>((i * 13 + k * 21) % 64);
        log_probs.mutable_as<float>()[i * kTopK + k] =
            -1.5f - 0.3f * static_cast<float>((i + k) % 5);
      }
    }
    batch.extras = {{"ref_logprobs", reference},     {"teacher_ids", ids},
                    {"teacher_logprobs", log_probs}, {"advantages", advantages},
                    {"old_logprobs", old},           {"sampler_logprobs", reference}};
    return batch;
  }

  std::unique_ptr<models::Model> model_ = *models::CreateModel(MeshConfig("llama"));
};

TEST_P(LossesMeshTest, LossesAndGradients) {
  std::vector<LossOptions> losses(6);
  for (LossOptions& loss : losses) loss.head_chunk_tokens = 16;
  losses[0].name = losses[1].name = "dpo";
  losses[1].dpo.loss = "ipo";
  losses[2].name = losses[3].name = "distill";
  losses[2].distill.top_k = losses[3].distill.top_k = kTopK;
  losses[3].distill.kl = "reverse";
  losses[3].distill.alpha = 0.5;
  losses[4].name = losses[5].name = "grpo";
  losses[4].grpo.kl_coef = 0.1;
  losses[4].grpo.importance = "sequence";
  losses[5].grpo.algorithm = "gspo";
  losses[5].grpo.aggregation = "sequence-mean";
  const data::Batch batch = Batch();
  for (const LossOptions& loss : losses) {
    SCOPED_TRACE(loss.name);
    const auto one = Make(loss, nullptr);
    const auto mesh = Make(loss, &GetParam());
    for (Engine* engine : {one.get(), mesh.get()}) {
      Ok(engine->FwdBwd(batch));
      Ok(engine->FwdBwd(batch));
    }
    const GradientReadout expected = *one->ReadGradients(), actual = *mesh->ReadGradients();
    for (size_t i = 0; i < expected.loss.totals.size(); ++i) {
      const auto& [sum, denominator] = expected.loss.totals[i];
      EXPECT_NEAR(actual.loss.totals[i].sum, sum, 1e-5 * std::abs(sum))
          << expected.loss.specs[i].name;
      EXPECT_EQ(actual.loss.totals[i].denominator, denominator);
    }
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      EXPECT_LE(RelativeL2(actual.gradients[i], expected.gradients[i]), 1e-5)
          << one->params()[i].name;
    }
  }
}

TEST_P(LossesMeshTest, Scores) {
  const data::Batch batch = Batch();
  const ScoreOptions options = {.temperature = 0.7, .entropy = true, .top_k = kTopK};
  const auto expected = Make({}, nullptr)->ScoreStep(batch, options);
  const auto actual = Make({}, &GetParam())->ScoreStep(batch, options);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_TRUE(actual.ok()) << actual.status();
  EXPECT_LE(RelativeL2(actual->log_probs, expected->log_probs), 1e-6);
  EXPECT_LE(RelativeL2(actual->entropy, expected->entropy), 1e-6);
  EXPECT_LE(RelativeL2(actual->top_log_probs, expected->top_log_probs), 1e-6);
  EXPECT_THAT(actual->top_ids.as<int32_t>(),
              ::testing::ElementsAreArray(expected->top_ids.as<int32_t>()));
}

TEST_P(LossesMeshTest, PairsAreNotCut) {
  LossOptions loss;
  loss.name = "dpo";
  const auto mesh = Make(loss, &GetParam());
  const int rows = GetParam().num_shards;
  data::Batch batch = Rows({1, 1, 1, 1}, 0, rows);
  batch.extras["ref_logprobs"] = HostTensor::Zeros(DType::kF32, batch.tokens.dims());
  const absl::Status status = mesh->FwdBwd(batch);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::HasSubstr(fmt::format("{} rows on {} devices are not whole pairs", rows, rows)));
}

// The second shards the vocabulary over the devices of its batch, the third over others.
INSTANTIATE_TEST_SUITE_P(Layouts, LossesMeshTest,
                         ::testing::Values(Layout{"data_fsdp", "data=2,fsdp=2", "default", 4},
                                           Layout{"fsdp_vocab", "fsdp=4", "fsdp-vocab", 4},
                                           Layout{"data_tensor", "data=2,tensor=2", "default", 2}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mw::train
