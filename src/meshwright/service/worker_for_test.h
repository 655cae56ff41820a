// A tiny model behind a TrainerWorker, and micro-batches for it.
#ifndef MESHWRIGHT_SERVICE_WORKER_FOR_TEST_H_
#define MESHWRIGHT_SERVICE_WORKER_FOR_TEST_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/core/host_tensor.h"
#include "meshwright/service/trainer_worker.h"
#include "meshwright/train/model_files_for_test.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::service {

using train::Ok;
using train::SameBits;

inline constexpr int64_t kRows = 2;
inline constexpr int64_t kTokens = 12;

// Of random:tiny-llama, which has 131 ids and 128 positions. Row r learns some tokens of `seed`.
inline std::map<std::string, HostTensor> TestTensors(int seed, int64_t rows = kRows) {
  std::map<std::string, HostTensor> tensors = {
      {"tokens", HostTensor::Zeros(DType::kS32, {rows, kTokens})},
      {"targets", HostTensor::Zeros(DType::kS32, {rows, kTokens})},
      {"loss_mask", HostTensor::Zeros(DType::kF32, {rows, kTokens})}};
  for (int64_t i = 0; i < rows * kTokens; ++i) {
    tensors["tokens"].mutable_as<int32_t>()[i] =
        static_cast<int32_t>((int64_t{seed} * 17 + i * 7 + 3) % 131);
    tensors["targets"].mutable_as<int32_t>()[i] =
        static_cast<int32_t>((int64_t{seed} * 17 + i * 7 + 10) % 131);
    tensors["loss_mask"].mutable_as<float>()[i] =
        i % kTokens < 4 + (seed + i / kTokens) % 8 ? 1 : 0;
  }
  return tensors;
}

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() {
    // Tests that run the same programs compile them once.
    static const train::TestDir cache;
    setenv("MW_CACHE_DIR", cache.File("").c_str(), /*overwrite=*/1);
  }

  train::TrainerOptions Options(const std::string& out = "",
                                std::vector<std::string> more = {}) const {
    train::TrainerOptions options;
    options.model = "random:tiny-llama:3";
    options.out = out;
    options.settings = Settings();
    options.settings.insert(options.settings.end(), more.begin(), more.end());
    return options;
  }
  static std::vector<std::string> Settings() {
    return {"learning_rate=1e-2", "lr_schedule=constant", "steps=20"};
  }

  static std::unique_ptr<TrainerWorker> Make(const train::TrainerOptions& options) {
    auto worker = std::make_unique<TrainerWorker>(options);
    Ok(worker->Initialize());
    return worker;
  }
  static std::unique_ptr<train::Trainer> MakeTrainer(const train::TrainerOptions& options) {
    auto trainer = train::Trainer::Create(options);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    return *std::move(trainer);
  }
  static data::Batch TestBatch(const TrainerWorker& worker, int seed, int64_t rows = kRows) {
    auto batch = worker.MakeBatch(TestTensors(seed, rows));
    EXPECT_TRUE(batch.ok()) << batch.status();
    return *std::move(batch);
  }

  // All weights as the bytes of a file.
  static std::string WeightsOf(TrainerWorker& worker) {
    const auto file = worker.Weights(std::nullopt, {});
    EXPECT_TRUE(file.ok()) << file.status();
    return WithoutHeader(**file);
  }
  static std::string WeightsOf(const train::Trainer& trainer) {
    auto weights = trainer.Weights();
    EXPECT_TRUE(weights.ok()) << weights.status();
    return WithoutHeader(**WeightsFile::Create(*std::move(weights), std::nullopt, 0));
  }
  // The tensors' bytes: the header has the version.
  static std::string WithoutHeader(const std::string& file) {
    uint64_t size = 0;
    for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(file[i]);
    return file.substr(8 + size);
  }
  static std::string WithoutHeader(const WeightsFile& file) {
    return WithoutHeader(file.Read(0, file.num_bytes()));
  }

  static std::string Refusal(const absl::Status& status, absl::StatusCode code) {
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  train::TestDir dir_;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_WORKER_FOR_TEST_H_
