// The sampler on several devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "meshwright/runtime/device_spec.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/model_files_for_test.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/sampler.h"
#include "meshwright/train/test_cache.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

class SamplerMeshTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new OpenedModel(*OpenModel(TinyModel("tiny-qwen3")));
    client_ = *runtime::Client::Create(*runtime::ParseDeviceSpec("cpu:4"));
    ASSERT_EQ(client_->devices().size(), 4u);
  }
  static void TearDownTestSuite() {
    client_.reset();
    delete model_;
  }

  static std::vector<HostTensor> Weights() {
    return *LoadParams(*model_, model_->model->Params({}), DType::kF32);
  }
  static std::unique_ptr<Sampler> Make(int num_devices, int64_t max_rows) {
    SamplerOptions options;
    options.num_devices = num_devices;
    options.max_rows = max_rows;
    return *Sampler::Create(client_, SharedTestCache(), model_->model.get(), options);
  }
  static SamplingOptions Options(int64_t num_samples, int64_t max_new_tokens) {
    SamplingOptions options;
    options.num_samples = num_samples;
    options.max_new_tokens = max_new_tokens;
    options.seed = 21;
    return options;
  }
  // Samples of different lengths.
  static std::vector<Sample> Generate(Sampler& sampler, int num_devices,
                                      const SamplingOptions& options) {
    const auto params = UploadParams(*client_, Weights(), num_devices);
    EXPECT_TRUE(params.ok()) << params.status();
    std::map<int64_t, int64_t> count;
    const auto samples =
        sampler.Generate(*params, kPrompts, options,
                         [&](int64_t i, int32_t, float) { return ++count[i] < 2 + i * 5 % 11; });
    EXPECT_TRUE(samples.ok()) << samples.status();
    return samples.ok() ? *samples : std::vector<Sample>();
  }

  inline static const std::vector<std::vector<int32_t>> kPrompts = {{5, 6, 7}, {9, 8, 7, 6, 5, 4}};
  inline static OpenedModel* model_ = nullptr;
  inline static std::shared_ptr<runtime::Client> client_;
};

// Whether all samples have a row at once or wait for one.
TEST_F(SamplerMeshTest, DevicesGiveTheTokensOfOne) {
  const SamplingOptions options = Options(9, 12);
  const auto sampler = Make(1, 64);
  const auto one = Generate(*sampler, 1, options);
  ASSERT_EQ(one.size(), 18u);
  for (const int num_devices : {2, 3, 4}) {
    for (const int64_t max_rows : {2, 64}) {
      const auto several = Make(num_devices, max_rows);
      const auto samples = Generate(*several, num_devices, options);
      ASSERT_EQ(samples.size(), one.size());
      for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_EQ(samples[i].tokens, one[i].tokens) << i;
        EXPECT_EQ(samples[i].prompt, one[i].prompt) << i;
        EXPECT_EQ(samples[i].finish_reason, one[i].finish_reason) << i;
        for (size_t t = 0; t < one[i].log_probs.size(); ++t) {
          EXPECT_NEAR(samples[i].log_probs[t], one[i].log_probs[t], 1e-5);
        }
      }
      EXPECT_EQ(several->stats().new_tokens, sampler->stats().new_tokens);
    }
  }
}

// Eight samples of 16 tokens by one row: in turn on one device, in two turns on four.
TEST_F(SamplerMeshTest, DevicesWorkAtTheSameTime) {
  std::map<int, int64_t> steps;
  for (const int num_devices : {1, 4}) {
    const auto sampler = Make(num_devices, 1);
    const auto params = *UploadParams(*client_, Weights(), num_devices);
    const auto samples = sampler->Generate(params, kPrompts, Options(4, 16));
    ASSERT_TRUE(samples.ok()) << samples.status();
    steps[num_devices] = sampler->stats().decode_steps;
  }
  EXPECT_EQ(steps[1], 8 * 15);
  EXPECT_EQ(steps[4], 2 * 15);
}

// A damaged weight of one device changes its samples and no others.
TEST_F(SamplerMeshTest, EachDeviceReadsItsOwnWeights) {
  const auto sampler = Make(4, 64);
  auto params = *UploadParams(*client_, Weights(), 4);
  const SamplingOptions options = Options(4, 12);
  const auto before = *sampler->Generate(params, kPrompts, options);
  std::vector<HostTensor> other = Weights();
  for (HostTensor& weight : other) {
    HostTensor copy = HostTensor::Empty(weight.dtype(), weight.dims());
    for (size_t i = 0; i < weight.as<float>().size(); ++i) {
      copy.mutable_as<float>()[i] = -3 * weight.as<float>()[i];
    }
    weight = std::move(copy);
  }
  const auto damaged = *UploadParams(*client_, std::move(other), 4);
  std::vector<std::vector<const runtime::Buffer*>> mixed(4);
  for (size_t d = 0; d < 4; ++d) {
    for (size_t i = 0; i < params[d].size(); ++i) {
      mixed[d].push_back(d == 2 ? &damaged[d][i] : &params[d][i]);
    }
  }
  const auto after = *sampler->Generate(mixed, kPrompts, options);
  ASSERT_EQ(after.size(), 8u);
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].tokens == before[i].tokens, i % 4 != 2) << i;
  }
}

TEST_F(SamplerMeshTest, OneProgramServesAllDevices) {
  const auto sampler = Make(4, 64);
  const auto params = *UploadParams(*client_, Weights(), 4);
  ASSERT_TRUE(sampler->Generate(params, kPrompts, Options(4, 8)).ok());
  std::vector<std::string> names;
  const auto memory = *sampler->MemoryStats();
  for (const auto& [name, stats] : memory) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("decode[2,16,sample]", "prefill[2,16,16,sample]"));
}

TEST_F(SamplerMeshTest, RefusesWhatDoesNotFit) {
  SamplerOptions options;
  options.num_devices = 5;
  const auto none = Sampler::Create(client_, nullptr, model_->model.get(), options);
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("num_devices is 5; the client has 4"));
  const auto sampler = Make(2, 4);
  const auto params = *UploadParams(*client_, Weights(), 1);
  const auto samples = sampler->Generate(params, kPrompts, Options(1, 4));
  EXPECT_THAT(std::string(samples.status().message()),
              HasSubstr("weights of 1 devices; the sampler has 2"));
}

}  // namespace
}  // namespace mw::train
