// A tiny model to train in the engine's tests.
#ifndef MESHWRIGHT_TRAIN_TINY_ENGINE_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_TINY_ENGINE_FOR_TEST_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/models/registry.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/test_cache.h"

namespace mw::train {

inline constexpr int64_t kTokens = 8;

inline models::ModelConfig TinyConfig() {
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

// Of sizes that meshes of up to eight devices divide; qwen3 ties its head.
inline models::ModelConfig MeshConfig(const std::string& family, int64_t vocab_size = 64) {
  models::ModelConfig c;
  c.family = family;
  c.vocab_size = vocab_size;
  c.hidden_size = 32;
  c.num_layers = 2;
  c.num_heads = 8;
  c.num_kv_heads = 4;
  c.head_dim = 8;
  c.mlp_size = 64;
  c.max_position = 64;
  c.qk_norm = family == "qwen3";
  c.tie_word_embeddings = family == "qwen3";
  return c;
}

inline EngineOptions TestOptions() {
  EngineOptions o;
  o.model.matmul_precision = "highest";
  o.schedule.lr_schedule = "constant";
  o.schedule.learning_rate = 1e-2;
  o.schedule.total_steps = 10;
  o.loss.head_chunk_tokens = 0;
  return o;
}

inline std::vector<HostTensor> RandomParams(const models::Model& model,
                                            const EngineOptions& options) {
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

// Rows [begin, end) of a fixed batch; row r learns counts[r] of its `length` tokens, each
// weighing `weight`.
inline data::Batch Rows(const std::vector<int>& counts, int begin, int end, float weight = 1,
                        int64_t length = kTokens) {
  const int64_t rows = end - begin;
  data::Batch b;
  b.tokens = HostTensor::Zeros(DType::kS32, {rows, length});
  b.targets = HostTensor::Zeros(DType::kS32, {rows, length});
  b.loss_mask = HostTensor::Zeros(DType::kF32, {rows, length});
  b.segment_ids = HostTensor::Zeros(DType::kS32, {rows, length});
  b.positions = HostTensor::Zeros(DType::kS32, {rows, length});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < length; ++t) {
      const int64_t i = r * length + t;
      const int64_t row = begin + r;
      b.tokens.mutable_as<int32_t>()[i] = static_cast<int32_t>((row * 11 + t * 7 + 3) % 32);
      b.targets.mutable_as<int32_t>()[i] = static_cast<int32_t>((row * 11 + t * 7 + 10) % 32);
      b.loss_mask.mutable_as<float>()[i] = t < counts[row] ? weight : 0;
      b.segment_ids.mutable_as<int32_t>()[i] = 1;
      b.positions.mutable_as<int32_t>()[i] = static_cast<int32_t>(t);
    }
  }
  b.num_tokens = rows * length;
  return b;
}

inline bool SameBits(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].num_bytes() != b[i].num_bytes() ||
        std::memcmp(a[i].bytes(), b[i].bytes(), a[i].num_bytes()) != 0) {
      return false;
    }
  }
  return true;
}

inline double MaxDifference(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (int64_t j = 0; j < a[i].num_elements(); ++j) {
      const double d = std::abs(a[i].as<float>()[j] - b[i].as<float>()[j]);
      worst = d <= worst ? worst : d;
    }
  }
  return worst;
}

// Of the difference, relative to `b`.
inline double RelativeL2(const HostTensor& a, const HostTensor& b) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = a.as<float>()[i], y = b.as<float>()[i];
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

inline void Ok(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }

inline StepMetrics Last(Engine& engine) {
  auto metrics = engine.TakeMetrics(true);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_FALSE(metrics->empty());
  return metrics->back();
}

class TinyEngineTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Make(const EngineOptions& options,
                               runtime::ExecutableCache* cache = SharedTestCache()) {
    auto client = TestClient("cpu");
    EXPECT_TRUE(client.ok()) << client.status();
    auto engine =
        Engine::Create(*client, cache, model_.get(), RandomParams(*model_, options), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  std::unique_ptr<models::Model> model_ = *models::CreateModel(TinyConfig());
  const std::vector<int> counts_ = {8, 2, 5, 1};
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TINY_ENGINE_FOR_TEST_H_
