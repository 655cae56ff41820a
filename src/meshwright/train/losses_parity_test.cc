// DPO and distillation against torch (tests/oracle/losses.py).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/batch_file.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/test_cache.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

constexpr char kReference[] = MW_SOURCE_DIR "/src/meshwright/train/testdata/losses.safetensors";
constexpr int64_t kStride = 61;  // of the stored elements of a larger gradient

struct LossCase {
  const char* name;
  std::vector<const char*> settings;
};

// As the script has them.
const std::vector<LossCase>& Cases() {
  static const auto* const cases = new std::vector<LossCase>{
      {"sigmoid", {"loss.name=dpo"}},
      {"smoothed", {"loss.name=dpo", "loss.dpo_beta=0.5", "loss.dpo_label_smoothing=0.2"}},
      {"hinge", {"loss.name=dpo", "loss.dpo_beta=0.3", "loss.dpo_loss=hinge"}},
      {"ipo", {"loss.name=dpo", "loss.dpo_beta=0.2", "loss.dpo_loss=ipo"}},
      {"reference_free", {"loss.name=dpo", "loss.dpo_reference_free=true"}},
      {"forward", {"loss.name=distill"}},
      {"forward_mixed",
       {"loss.name=distill", "loss.distill_temperature=2", "loss.distill_alpha=0.7"}},
      {"reverse", {"loss.name=distill", "loss.distill_kl=reverse", "loss.distill_temperature=1.5"}},
  };
  return *cases;
}

class LossesParityTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto model = OpenModel(TinyModel(GetParam()));
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::move(*model);
    auto batch = ReadBatchFile(kReference, model_.config, /*require_targets=*/true);
    ASSERT_TRUE(batch.ok()) << batch.status();
    batch_ = batch->batch;
    for (const char* name : {"ref_logprobs", "teacher_ids", "teacher_logprobs"}) {
      batch_.extras[name] = Get(name);
    }
  }

  HostTensor Get(const std::string& name) const {
    auto tensor = reference_->Read(fmt::format("{}/{}", GetParam(), name));
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *tensor;
  }

  TrainConfig Config(const LossCase& loss) const {
    std::vector<std::string> settings = {"matmul_precision=highest", "head_chunk_tokens=24",
                                         "lr_schedule=constant"};
    settings.insert(settings.end(), loss.settings.begin(), loss.settings.end());
    if (settings[3] == "loss.name=distill") settings.emplace_back("loss.distill_top_k=5");
    auto config = LoadConfig("", settings);
    EXPECT_TRUE(config.ok()) << config.status();
    return *config;
  }

  std::unique_ptr<Engine> Make(const TrainConfig& config) const {
    auto client = TestClient("cpu");
    EXPECT_TRUE(client.ok()) << client.status();
    auto engine = MakeEngine(*client, SharedTestCache(), model_, config, /*weights_only=*/true);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  // The distillation cases weigh tokens.
  data::Batch BatchOf(const TrainConfig& config) const {
    data::Batch batch = batch_;
    if (config.engine.loss.name == "distill") batch.loss_mask = *reference_->Read("weights");
    return batch;
  }

  // The 2-norm of the difference of a Hugging Face tensor's gradient relative to that of the
  // stored values, or to what 1e-4 of the largest gradient has; the worst of all.
  double WorstError(const std::string& name, const std::vector<nn::ParamSpec>& specs,
                    const std::vector<HostTensor>& actual) const {
    double worst = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto parts = static_cast<int64_t>(specs[i].hf_names.size());
      const int64_t n = actual[i].num_elements() / parts;
      for (int64_t part = 0; part < parts; ++part) {
        const HostTensor stored =
            Get(fmt::format("{}/gradient/{}", name, specs[i].hf_names[static_cast<size_t>(part)]));
        const int64_t stride = stored.num_elements() == n ? 1 : kStride;
        EXPECT_EQ(stored.num_elements(), (n + stride - 1) / stride) << specs[i].name;
        double difference = 0;
        double size = 0;
        for (int64_t j = 0; j < stored.num_elements(); ++j) {
          const double expected = stored.as<float>()[static_cast<size_t>(j)];
          difference += std::pow(
              actual[i].as<float>()[static_cast<size_t>(part * n + j * stride)] - expected, 2);
          size += std::pow(expected, 2);
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
  std::shared_ptr<io::SafetensorsFile> reference_ = *io::SafetensorsFile::Open(kReference);
};

// What is masked holds -inf, NaN and ids outside the vocabulary.
TEST_P(LossesParityTest, LossMetricsAndGradientsOfAnySplit) {
  for (const LossCase& loss : Cases()) {
    const TrainConfig config = Config(loss);
    const bool is_dpo = config.engine.loss.name == "dpo";
    const auto engine = Make(config);
    std::vector<std::vector<int64_t>> splits = {{8}};
    // A split changes sums only, whatever is summed.
    const bool is_first = &loss == &Cases()[0] || &loss == &Cases()[5];
    if (is_first && std::string(GetParam()) == "tiny-llama") {
      splits.insert(splits.end(), {{2, 6}, {2, 2, 2, 2}});
    }
    for (const std::vector<int64_t>& rows : splits) {
      SCOPED_TRACE(fmt::format("{} in {} micro-batches", loss.name, rows.size()));
      engine->ClearGradients();
      for (const data::Batch& batch : SplitBatch(BatchOf(config), rows)) Ok(engine->FwdBwd(batch));
      const auto readout = engine->ReadGradients();
      ASSERT_TRUE(readout.ok()) << readout.status();
      // The last pair does not count.
      EXPECT_EQ(readout->loss.denominator() == 3, is_dpo);
      for (size_t i = 0; i < readout->loss.specs.size(); ++i) {
        const std::string& name = readout->loss.specs[i].name;
        const double expected = Get(fmt::format("{}/{}", loss.name, name)).as<float>()[0];
        // Rewards are differences of sums that are up to 1e3 times as large.
        const double scale = std::abs(expected) + (is_dpo ? 0.1 : 0);
        EXPECT_NEAR(readout->loss.Mean(i), expected, 1e-5 * scale) << name;
      }
      EXPECT_LE(WorstError(loss.name, engine->params(), readout->gradients), 2e-5);
    }
    if (!is_first) continue;
    // Measuring is the same sums.
    const auto evaluated = engine->EvalStep(BatchOf(config));
    ASSERT_TRUE(evaluated.ok()) << evaluated.status();
    const double expected = Get(fmt::format("{}/loss", loss.name)).as<float>()[0];
    EXPECT_NEAR(evaluated->Loss(), expected, 1e-5 * expected) << loss.name;
  }
}

// Another reference and another teacher are seen.
TEST_P(LossesParityTest, OthersThanTheBatchsGiveOtherGradients) {
  const auto error_of = [&](const LossCase& loss, const std::function<void(data::Batch&)>& spoil) {
    const TrainConfig config = Config(loss);
    const auto engine = Make(config);
    data::Batch batch = BatchOf(config);
    spoil(batch);
    Ok(engine->FwdBwd(batch));
    return WorstError(loss.name, engine->params(), engine->ReadGradients()->gradients);
  };
  const auto shift = [](HostTensor& tensor) {
    HostTensor copy = HostTensor::Empty(tensor.dtype(), tensor.dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      copy.mutable_as<float>()[i] = tensor.as<float>()[i] - (i % 2 == 0 ? 0.5f : 0.0f);
    }
    tensor = copy;
  };
  EXPECT_GT(error_of(Cases()[0], [&](data::Batch& b) { shift(b.extras["ref_logprobs"]); }), 1e-3);
  EXPECT_GT(error_of(Cases()[5], [&](data::Batch& b) { shift(b.extras["teacher_logprobs"]); }),
            1e-3);
  EXPECT_GT(error_of(Cases()[3],
                     [&](data::Batch& b) {
                       b.extras["ref_logprobs"] =
                           HostTensor::Zeros(DType::kF32, b.loss_mask.dims());
                     }),
            1e-3);
}

// The score of a batch is what its losses are made of.
TEST_P(LossesParityTest, ScoreStepGivesLogProbs) {
  const TrainConfig config = Config(Cases()[0]);
  const auto engine = Make(config);
  data::Batch packed = batch_;
  packed.extras.clear();  // what the loss wants is not asked for
  const auto scores = engine->ScoreStep(packed);
  ASSERT_TRUE(scores.ok()) << scores.status();
  const auto mask = batch_.loss_mask.as<float>();
  double chosen = 0;
  for (int64_t row = 0; row < 6; row += 2) {
    for (int64_t t = 0; t < 12; ++t) chosen += scores->log_probs.as<float>()[row * 12 + t] / 3;
  }
  EXPECT_NEAR(chosen, Get("sigmoid/logps/chosen").as<float>()[0], 1e-4);
  for (int64_t i = 0; i < 96; ++i) {
    const float log_prob = scores->log_probs.as<float>()[i];
    EXPECT_EQ(log_prob == 0, mask[i] == 0) << i;
  }

  const auto more = engine->ScoreStep(packed, {.entropy = true, .top_k = 131});
  ASSERT_TRUE(more.ok()) << more.status();
  for (int64_t i = 0; i < 96; ++i) {
    if (mask[i] == 0) continue;
    // Of all the tokens: their probabilities sum to 1, and their entropy is the entropy.
    double sum = 0, entropy = 0;
    const int32_t target = batch_.targets.as<int32_t>()[i];
    bool found = false;
    for (int64_t k = 0; k < 131; ++k) {
      const double log_prob = more->top_log_probs.as<float>()[i * 131 + k];
      sum += std::exp(log_prob);
      entropy -= std::exp(log_prob) * log_prob;
      EXPECT_LE(log_prob, more->top_log_probs.as<float>()[i * 131 + std::max<int64_t>(k, 1) - 1]);
      if (more->top_ids.as<int32_t>()[i * 131 + k] != target) continue;
      found = true;
      EXPECT_NEAR(log_prob, scores->log_probs.as<float>()[i], 1e-5);
    }
    EXPECT_TRUE(found);
    EXPECT_NEAR(sum, 1, 1e-5);
    EXPECT_NEAR(more->entropy.as<float>()[i], entropy, 1e-4);
  }
  const auto programs = engine->programs();
  EXPECT_TRUE(programs.contains("score_kernel[8,12]"));
  EXPECT_TRUE(programs.contains("score_kernel[8,12] entropy top_k=131"));
  EXPECT_THAT(std::string(engine->ScoreStep(packed, {.top_k = 132}).status().message()),
              ::testing::HasSubstr("top_k 132"));
}

INSTANTIATE_TEST_SUITE_P(Families, LossesParityTest, ::testing::Values("tiny-llama", "tiny-qwen3"),
                         [](const auto& info) {
                           return std::string(info.param) == "tiny-llama" ? "Llama" : "Qwen3";
                         });

}  // namespace
}  // namespace mw::train
