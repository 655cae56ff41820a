// GRPO and its relatives as torch has them (tests/oracle/policy_gradients.py).
#ifndef MESHWRIGHT_TRAIN_POLICY_GRADIENTS_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_POLICY_GRADIENTS_FOR_TEST_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/batch_file.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/model_files_for_test.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/stored_error_for_test.h"
#include "meshwright/train/test_cache.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {

inline constexpr char kPolicyGradients[] =
    MW_SOURCE_DIR "/src/meshwright/train/testdata/policy_gradients.safetensors";
inline constexpr int64_t kPolicyGradientStride =
    251;  // of the stored elements of a larger gradient

struct PolicyCase {
  std::string name;
  std::vector<std::string> settings;
  // What the batch has besides.
  bool old = true;
  bool token_advantages = false;
  bool sampler = false;
};

// As the script has them: every algorithm with every aggregation, then the other settings.
inline std::vector<PolicyCase> PolicyMatrix() {
  std::vector<PolicyCase> cases;
  for (const std::string algorithm : {"grpo", "gspo", "gspo-token", "cispo", "reinforce"}) {
    for (const std::string aggregation :
         {"token-mean", "sequence-mean", "sequence-sum", "constant"}) {
      PolicyCase c = {algorithm + "_" + aggregation,
                      {"loss.algorithm=" + algorithm, "loss.aggregation=" + aggregation}};
      if (algorithm.starts_with("gspo")) {
        c.settings.insert(c.settings.end(), {"loss.clip_low=0.03", "loss.clip_high=0.04"});
      }
      if (aggregation == "constant") c.settings.emplace_back("loss.norm_length=16");
      cases.push_back(c);
    }
  }
  return cases;
}

inline std::vector<PolicyCase> OtherPolicyCases() {
  return {
      {"clip_higher", {"loss.clip_high=0.5"}},
      {"dual_clip", {"loss.dual_clip=1.3"}},
      {"kl_k1", {"loss.kl_coef=0.2", "loss.kl_estimator=k1"}},
      {"kl_k2", {"loss.kl_coef=0.2", "loss.kl_estimator=k2", "loss.aggregation=sequence-mean"}},
      {"kl_k3", {"loss.kl_coef=0.2"}},
      {"kl_reward", {"loss.kl_coef=0.2", "loss.kl_in=reward"}},
      {"importance_token",
       {"loss.importance=token", "loss.importance_cap=1.2", "loss.kl_coef=0.1"}},
      {.name = "importance_sequence",
       .settings = {"loss.importance=sequence", "loss.importance_cap=1.5"},
       .sampler = true},
      {.name = "importance_on_policy",
       .settings = {"loss.importance=token", "loss.algorithm=reinforce"},
       .old = false},
      {.name = "mismatch", .settings = {}, .old = false, .sampler = true},
      {"temperature", {"loss.temperature=0.7"}},
      {.name = "token_advantages", .settings = {}, .token_advantages = true},
      {.name = "gspo_token_advantages",
       .settings = {"loss.algorithm=gspo-token", "loss.clip_low=0.03", "loss.clip_high=0.04"},
       .token_advantages = true},
      {.name = "on_policy", .settings = {}, .old = false},
  };
}

class PolicyGradientsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = OpenModel(TinyModel("tiny-llama"));
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::move(*model);
    auto batch = ReadBatchFile(kPolicyGradients, model_.config, /*require_targets=*/true);
    ASSERT_TRUE(batch.ok()) << batch.status();
    batch_ = batch->batch;
  }

  HostTensor Get(const std::string& name) const {
    auto tensor = reference_->Read(name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *tensor;
  }

  data::Batch BatchOf(const PolicyCase& c) const {
    data::Batch batch = batch_;
    batch.extras["advantages"] = Get(c.token_advantages ? "token_advantages" : "advantages");
    for (const char* name : {"old_logprobs", "ref_logprobs", "sampler_logprobs"}) {
      batch.extras[name] = Get(name);
    }
    return batch;
  }

  std::unique_ptr<Engine> Make(const PolicyCase& c, const std::string& mesh = "") const {
    std::vector<std::string> settings = {"matmul_precision=highest", "head_chunk_tokens=16",
                                         "lr_schedule=constant", "loss.name=grpo"};
    settings.insert(settings.end(), c.settings.begin(), c.settings.end());
    if (!mesh.empty()) settings.push_back("mesh=" + mesh);
    auto config = LoadConfig("", settings);
    EXPECT_TRUE(config.ok()) << config.status();
    GrpoOptions& grpo = config->engine.loss.grpo;
    grpo.has_old_log_probs = c.old;
    grpo.has_token_advantages = c.token_advantages;
    grpo.has_sampler_log_probs = c.sampler;
    if (!mesh.empty()) config->engine.mesh = *config->mesh.Resolve(0);
    auto client = mesh.empty() ? TestClient("cpu") : TestMeshClient();
    EXPECT_TRUE(client.ok()) << client.status();
    auto engine = MakeEngine(*client, SharedTestCache(), model_, *config, /*weights_only=*/true);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  double WorstError(const PolicyCase& c, const Engine& engine,
                    const std::vector<HostTensor>& gradients) const {
    return WorstStoredError(
        engine.params(), gradients,
        [&](const std::string& name) { return Get(c.name + "/gradient/" + name); }, nullptr,
        kPolicyGradientStride);
  }

  // Metrics are means of numbers of about 1 that may cancel.
  void ExpectAsStored(const PolicyCase& c, const LossTotals& loss) const {
    for (size_t i = 0; i < loss.specs.size(); ++i) {
      const std::string& name = loss.specs[i].name;
      if (loss.specs[i].is_max) continue;  // see ExpectMaxima
      const double expected = Get(c.name + "/" + name).as<float>()[0];
      EXPECT_NEAR(loss.Mean(i), expected, 1e-5 * std::max(std::abs(expected), 0.1)) << name;
    }
  }

  // The largest values are those of the log-probs that ScoreStep gives, by the formulas of
  // losses/grpo.h.
  void ExpectMaxima(const PolicyCase& c, Engine* engine, const data::Batch& batch,
                    const LossTotals& loss) const {
    const GrpoOptions& options = engine->options().loss.grpo;
    ScoreOptions score;
    score.temperature = options.temperature;
    const auto scores = engine->ScoreStep(batch, score);
    ASSERT_TRUE(scores.ok()) << scores.status();
    const auto log_probs = scores->log_probs.as<float>();
    const auto mask = batch.loss_mask.as<float>();
    const auto old = batch.extras.at("old_logprobs").as<float>();
    const auto sampler = batch.extras.at("sampler_logprobs").as<float>();
    const auto length = static_cast<size_t>(batch.tokens.dims()[1]);
    double ratio_max = 0, mismatch_max = 0;
    for (size_t row = 0; row * length < mask.size(); ++row) {
      double row_sum = 0, num_tokens = 0;
      for (size_t i = row * length; i < (row + 1) * length; ++i) {
        if (mask[i] == 0) continue;
        const double before = c.old ? old[i] : log_probs[i];
        const double ratio = std::exp(log_probs[i] - before);
        if (!options.algorithm.starts_with("gspo")) ratio_max = std::max(ratio_max, ratio);
        mismatch_max = std::max(mismatch_max, std::abs(before - sampler[i]));
        row_sum += log_probs[i] - before;
        num_tokens += 1;
      }
      if (options.algorithm.starts_with("gspo") && num_tokens > 0) {
        ratio_max = std::max(ratio_max, std::exp(row_sum / num_tokens));
      }
    }
    EXPECT_GT(ratio_max, 0);
    EXPECT_NEAR(loss.Find("rl/ratio_max").value_or(-1), ratio_max, 1e-5 * ratio_max);
    if (const auto mismatch = loss.Find("rl/mismatch_max")) {
      EXPECT_NEAR(*mismatch, mismatch_max, 1e-5 * mismatch_max);
    }
  }

  void Check(const PolicyCase& c, Engine* engine,
             const std::vector<std::vector<int64_t>>& splits) const {
    const data::Batch batch = BatchOf(c);
    for (const std::vector<int64_t>& rows : splits) {
      SCOPED_TRACE(fmt::format("{} in {} micro-batches", c.name, rows.size()));
      engine->ClearGradients();
      for (const data::Batch& part : SplitBatch(batch, rows)) Ok(engine->FwdBwd(part));
      const auto readout = engine->ReadGradients();
      ASSERT_TRUE(readout.ok()) << readout.status();
      ExpectAsStored(c, readout->loss);
      ExpectMaxima(c, engine, batch, readout->loss);
      EXPECT_LE(WorstError(c, *engine, readout->gradients), 1e-5);
    }
  }

  OpenedModel model_;
  data::Batch batch_;
  std::shared_ptr<io::SafetensorsFile> reference_ = *io::SafetensorsFile::Open(kPolicyGradients);
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_POLICY_GRADIENTS_FOR_TEST_H_
