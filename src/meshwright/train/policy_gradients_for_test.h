// GRPO and its relatives as torch has them (tests/oracle/policy_gradients.py).
#ifndef MESHWRIGHT_TRAIN_POLICY_GRADIENTS_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_POLICY_GRADIENTS_FOR_TEST_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/batch_file.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/make_batch.h"
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
  // Which of the batch's rows share each row; empty: each has its own.
  std::vector<std::vector<int64_t>> packed = {};
};

// Of packed rows: one more than any of them needs.
inline constexpr int64_t kMaxSegments = 3;

// The rows of `batch` that `plan` names, side by side in rows of twice the length, their padding
// left out; `pad_first`: after the padding. What padding holds is garbage.
inline data::Batch PackRows(const data::Batch& batch, const std::vector<std::vector<int64_t>>& plan,
                            bool pad_first) {
  const int64_t length = batch.tokens.dims()[1];
  const Dims dims = {std::ssize(plan), 2 * length};
  const auto segments = batch.segment_ids.as<int32_t>();
  data::Batch packed;
  // Calls copy(place in the packed batch, place in the batch, segment, row of the batch).
  const auto for_each = [&](const auto& copy) {
    for (int64_t row = 0; row < dims[0]; ++row) {
      std::vector<int64_t> places;
      std::vector<int32_t> numbers;
      int32_t segment = 0;
      for (const int64_t from : plan[static_cast<size_t>(row)]) {
        ++segment;
        for (int64_t i = from * length; i < (from + 1) * length; ++i) {
          if (segments[static_cast<size_t>(i)] == 0) continue;
          places.push_back(i);
          numbers.push_back(segment);
        }
      }
      const int64_t first = row * dims[1] + (pad_first ? dims[1] - std::ssize(places) : 0);
      for (size_t i = 0; i < places.size(); ++i) {
        copy(static_cast<size_t>(first) + i, static_cast<size_t>(places[i]), numbers[i]);
      }
    }
  };
  const auto take = [&](const HostTensor& from, double elsewhere) {
    HostTensor to = HostTensor::Zeros(from.dtype(), dims);
    const bool is_float = from.dtype() == DType::kF32;
    for (float& value : is_float ? to.mutable_as<float>() : std::span<float>()) {
      value = static_cast<float>(elsewhere);
    }
    for_each([&](size_t place, size_t at, int32_t) {
      if (is_float) {
        to.mutable_as<float>()[place] = from.as<float>()[at];
      } else {
        to.mutable_as<int32_t>()[place] = from.as<int32_t>()[at];
      }
    });
    return to;
  };
  packed.tokens = take(batch.tokens, 0);
  packed.targets = take(batch.targets, 0);
  packed.positions = take(batch.positions, 0);
  packed.loss_mask = take(batch.loss_mask, 0);
  packed.segment_ids = HostTensor::Zeros(DType::kS32, dims);
  for_each([&](size_t place, size_t, int32_t segment) {
    packed.segment_ids.mutable_as<int32_t>()[place] = segment;
  });
  for (const auto& [name, tensor] : batch.extras) {
    if (tensor.dims().size() == 2) {
      packed.extras[name] = take(tensor, std::nan(""));
      continue;
    }
    HostTensor of_sequences = HostTensor::Zeros(DType::kF32, {dims[0], kMaxSegments});
    for (float& value : of_sequences.mutable_as<float>()) value = std::nanf("");
    for (size_t row = 0; row < plan.size(); ++row) {
      for (size_t i = 0; i < plan[row].size(); ++i) {
        of_sequences.mutable_as<float>()[row * kMaxSegments + i] =
            tensor.as<float>()[static_cast<size_t>(plan[row][i])];
      }
    }
    packed.extras[name] = of_sequences;
  }
  CountTokens(packed);
  return packed;
}

// With two rows each in one, in another order.
inline PolicyCase Packed(PolicyCase c) {
  c.packed = {{3, 1}, {2, 0}};
  return c;
}

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
    return c.packed.empty() ? batch : PackRows(batch, c.packed, /*pad_first=*/true);
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
    if (!c.packed.empty()) grpo.max_segments = kMaxSegments;
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
      const double expected = Get(c.name + "/" + name).as<float>()[0];
      EXPECT_NEAR(loss.Mean(i), expected, 1e-5 * std::max(std::abs(expected), 0.1)) << name;
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
      EXPECT_LE(WorstError(c, *engine, readout->gradients), 1e-5);
    }
  }

  OpenedModel model_;
  data::Batch batch_;
  std::shared_ptr<io::SafetensorsFile> reference_ = *io::SafetensorsFile::Open(kPolicyGradients);
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_POLICY_GRADIENTS_FOR_TEST_H_
