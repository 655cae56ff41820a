#include "meshwright/rl/policy_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "meshwright/rl/rollouts.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/train/run.h"
#include "meshwright/train/test_cache.h"

namespace mw::rl {
namespace {

struct Loaded {
  train::OpenedModel model;
  train::TrainConfig config;
  std::shared_ptr<runtime::Client> client;
  std::unique_ptr<train::Engine> engine;
  std::unique_ptr<PolicySampler> sampler;
};

// A model after an update, so that adapters are not zeros.
std::unique_ptr<Loaded> Load(const std::vector<std::string>& settings, const char* devices) {
  auto loaded = std::make_unique<Loaded>();
  std::vector<std::string> all = {"loss.name=grpo",      "matmul_precision=highest",
                                  "batch_size=4",        "max_target_length=24",
                                  "max_new_tokens=12",   "learning_rate=1e-2",
                                  "lr_schedule=constant"};
  all.insert(all.end(), settings.begin(), settings.end());
  loaded->config = *train::LoadConfig("", all);
  const auto device = *runtime::ParseDeviceSpec(devices);
  loaded->client = *runtime::Client::Create(device);
  loaded->config.engine.mesh = *loaded->config.mesh.Resolve(device.num_devices);
  loaded->config.engine.loss.grpo.has_old_log_probs = false;
  loaded->model = *train::OpenModel("random:tiny-qwen3:3");
  loaded->engine = *train::MakeEngine(loaded->client, train::SharedTestCache(), loaded->model,
                                      loaded->config, /*weights_only=*/false);
  loaded->sampler =
      *PolicySampler::Create(loaded->client, train::SharedTestCache(), loaded->model.model.get(),
                             loaded->config, 24, loaded->engine.get(), nullptr, {});
  return loaded;
}

std::vector<Rollout> Rollouts(Loaded& loaded, double temperature) {
  const std::atomic<bool> stop = false;
  const std::vector<std::vector<int32_t>> prompts = {{5, 6, 7}, {9, 8, 7, 6, 5, 4}};
  const auto completions = loaded.sampler->Generate(prompts, 3, temperature, 17, stop);
  EXPECT_TRUE(completions.ok()) << completions.status();
  std::vector<Rollout> rollouts;
  for (const auto& [sample, text] : *completions) {
    Rollout& rollout = rollouts.emplace_back();
    rollout.ids = prompts[static_cast<size_t>(sample.prompt)];
    rollout.prompt_tokens = std::ssize(rollout.ids);
    rollout.ids.insert(rollout.ids.end(), sample.tokens.begin(), sample.tokens.end());
    rollout.sampler_log_probs = sample.log_probs;
    rollout.advantage = rollouts.size() % 2 == 0 ? 1.0F : -1.0F;
  }
  return rollouts;
}

void Update(Loaded& loaded, const std::vector<Rollout>& rollouts) {
  for (const auto& rows : SplitRows(rollouts, {4, 24, false})) {
    const auto batch = MakeMicroBatch(rows, {4, 24, false});
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_TRUE(loaded.engine->FwdBwd(*batch).ok());
  }
  ASSERT_TRUE(loaded.engine->Update().ok());
}

double LargestDifference(Loaded& loaded, double sampled_at, double scored_at) {
  std::vector<Rollout> rollouts = Rollouts(loaded, sampled_at);
  const std::atomic<bool> stop = false;
  train::ScoreOptions options;
  options.temperature = scored_at;
  EXPECT_TRUE(ScoreRollouts(*loaded.engine, options, {4, 24, false}, &Rollout::old_log_probs,
                            rollouts, stop)
                  .ok());
  double largest = 0;
  for (const Rollout& rollout : rollouts) {
    EXPECT_EQ(rollout.num_tokens(), 12);
    for (size_t t = 0; t < rollout.old_log_probs.size(); ++t) {
      largest = std::max<double>(largest,
                                 std::abs(rollout.old_log_probs[t] - rollout.sampler_log_probs[t]));
    }
  }
  return largest;
}

struct Layout {
  const char* name;
  std::vector<std::string> settings;
  const char* devices = "cpu";
  bool is_sharded = false;  // some weight is whole on no device
};

class SamplerAndTrainerTest : public ::testing::TestWithParam<Layout> {};

// After each update the sampler has the newest weights.
TEST_P(SamplerAndTrainerTest, GiveTheSameLogProbs) {
  const auto loaded = Load(GetParam().settings, GetParam().devices);
  for (int step = 0; step < 3; ++step) {
    EXPECT_LT(LargestDifference(*loaded, 1.0, 1.0), 1e-5);
    EXPECT_LT(LargestDifference(*loaded, 0.7, 0.7), 1e-5);
    Update(*loaded, Rollouts(*loaded, 1.0));
  }
  // Negative controls: another temperature, and weights of before.
  EXPECT_GT(LargestDifference(*loaded, 0.7, 1.0), 1e-2);
  std::vector<Rollout> before = Rollouts(*loaded, 1.0);
  Update(*loaded, before);
  const std::vector<Rollout> after = Rollouts(*loaded, 1.0);
  EXPECT_NE(before[0].sampler_log_probs, after[0].sampler_log_probs);
}

class SamplerOnAMeshTest : public ::testing::TestWithParam<Layout> {};

// Every device has the whole weights, and the mesh does not show in what is sampled.
TEST_P(SamplerOnAMeshTest, GivesTheTokensOfOneDevice) {
  const auto loaded = Load(GetParam().settings, GetParam().devices);
  const int64_t num_devices = loaded->config.engine.mesh.partition.mesh.num_devices();
  std::vector<std::vector<runtime::Buffer>> copies;
  const auto weights = *loaded->engine->WholeParams(&copies);
  const std::vector<HostTensor> expected = *loaded->engine->Params();
  ASSERT_EQ(std::ssize(weights), num_devices);
  for (size_t d = 0; d < weights.size(); ++d) {
    // Without copies where the engine has them like that.
    if (copies.empty()) {
      EXPECT_EQ(weights[d], loaded->engine->DeviceParams(static_cast<int64_t>(d)));
    }
    ASSERT_EQ(weights[d].size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ((*weights[d][i]->device())->id(), loaded->client->devices()[d].id());
      const HostTensor held = *weights[d][i]->ToHost();
      EXPECT_TRUE(std::ranges::equal(held.as<float>(), expected[i].as<float>()))
          << "device " << d << " weight " << i;
    }
  }
  EXPECT_EQ(copies.empty(), !GetParam().is_sharded);

  std::vector<std::string> settings;
  for (const std::string& setting : GetParam().settings) {
    if (!setting.starts_with("mesh=") && !setting.starts_with("sharding_")) {
      settings.push_back(setting);
    }
  }
  const auto one = Load(settings, "cpu");
  for (const double temperature : {0.0, 1.0}) {
    const std::vector<Rollout> wanted = Rollouts(*one, temperature);
    const std::vector<Rollout> given = Rollouts(*loaded, temperature);
    ASSERT_EQ(given.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(given[i].ids, wanted[i].ids) << i;
      for (size_t t = 0; t < wanted[i].sampler_log_probs.size(); ++t) {
        EXPECT_NEAR(given[i].sampler_log_probs[t], wanted[i].sampler_log_probs[t], 1e-5);
      }
    }
  }
}

// What the reference of a run with adapters is.
TEST(WithoutAdaptersTest, IsTheModelOfBefore) {
  const auto loaded = Load({"lora.rank=2"}, "cpu");
  std::vector<Rollout> rollouts = Rollouts(*loaded, 1.0);
  const std::atomic<bool> stop = false;
  const auto score = [&](bool without_adapters) {
    train::ScoreOptions options;
    options.without_adapters = without_adapters;
    EXPECT_TRUE(ScoreRollouts(*loaded->engine, options, {4, 24, false}, &Rollout::ref_log_probs,
                              rollouts, stop)
                    .ok());
    std::vector<float> all;
    for (const Rollout& rollout : rollouts) {
      all.insert(all.end(), rollout.ref_log_probs.begin(), rollout.ref_log_probs.end());
    }
    return all;
  };
  const std::vector<float> before = score(true);
  // Fresh adapters add nothing.
  const std::vector<float> fresh = score(false);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(fresh[i], before[i], 1e-6);
  Update(*loaded, rollouts);
  Update(*loaded, rollouts);
  EXPECT_EQ(score(true), before);
  const std::vector<float> trained = score(false);
  double largest = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    largest = std::max<double>(largest, std::abs(trained[i] - before[i]));
  }
  EXPECT_GT(largest, 1e-3);
}

const Layout kDataFsdp = {"data_fsdp", {"mesh=data=2,fsdp=2"}, "cpu:4", true};
const Layout kData = {"data", {"mesh=data=2", "scan_layers=false"}, "cpu:2"};
const Layout kTensor = {"tensor", {"mesh=tensor=2", "sharding_fallback=replicate"}, "cpu:2", true};

std::string Name(const ::testing::TestParamInfo<Layout>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Layouts, SamplerAndTrainerTest,
                         ::testing::Values(Layout{"loop", {}},
                                           Layout{"layers", {"scan_layers=false"}},
                                           Layout{"adapters", {"lora.rank=2"}}, kDataFsdp, kData,
                                           kTensor),
                         Name);
INSTANTIATE_TEST_SUITE_P(Meshes, SamplerOnAMeshTest, ::testing::Values(kDataFsdp, kData, kTensor),
                         Name);

}  // namespace
}  // namespace mw::rl
