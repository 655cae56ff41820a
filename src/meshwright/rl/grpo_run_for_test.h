// GrpoTest: a run of a tiny model that learns what its first token may be.
#ifndef MESHWRIGHT_RL_GRPO_RUN_FOR_TEST_H_
#define MESHWRIGHT_RL_GRPO_RUN_FOR_TEST_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "meshwright/io/file_util.h"
#include "meshwright/rl/grpo_run.h"
#include "meshwright/runtime/device_spec.h"
#include "meshwright/train/test_cache.h"

namespace mw::rl {

using nlohmann::ordered_json;

inline std::vector<ordered_json> Lines(const std::string& path) {
  std::vector<ordered_json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(ordered_json::parse(line));
  return lines;
}

class GrpoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "grpo_XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    std::ofstream file(dir_ + "/prompts.jsonl");
    for (int i = 0; i < 6; ++i) {
      file << ordered_json{{"id", "row-" + std::to_string(i)},
                           {"prompt", std::vector<int>(static_cast<size_t>(2 + i % 3), 3 + i)},
                           {"answer", i}}
                  .dump()
           << "\n";
    }
    options_.model = "random:tiny-llama:1";
    options_.data = {dir_ + "/prompts.jsonl"};
    options_.out = dir_ + "/run";
    // Half of the vocabulary's tokens.
    options_.rewards = {"regex"};
    options_.note = [this](std::string_view sentence) { notes_ += std::string(sentence) + "\n"; };
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static std::vector<std::string> Settings(std::vector<std::string> more) {
    std::vector<std::string> all = {
        "loss.name=grpo",           "reward.pattern=^([0-9]|[1-5][0-9])\\b",
        "reward.answer=answer",     "prompts_per_step=3",
        "num_generations=4",        "batch_size=4",
        "max_new_tokens=4",         "learning_rate=1e-2",
        "lr_schedule=constant",     "adam_weight_decay=0",
        "matmul_precision=highest", "steps=3"};
    // A group would be compared with the answer.
    all[1] = "reward.pattern=^(?:[0-9]|[1-5][0-9])\\b";
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  absl::StatusOr<train::RunResult> TryRun(const std::vector<std::string>& settings,
                                          const char* devices = "cpu") {
    auto config = train::LoadConfig("", Settings(settings));
    if (!config.ok()) return config.status();
    const auto device = runtime::ParseDeviceSpec(devices);
    EXPECT_TRUE(device.ok());
    std::shared_ptr<runtime::Client>& client = clients_[devices];
    if (client == nullptr) client = *runtime::Client::Create(*device);
    auto mesh = config->mesh.Resolve(device->num_devices);
    if (!mesh.ok()) return mesh.status();
    config->engine.mesh = *mesh;
    return RunGrpo(client, train::SharedTestCache(), *config, options_, stop_);
  }
  // A new run in `out`. Its metrics.
  std::vector<ordered_json> Run(const std::vector<std::string>& settings = {},
                                const std::string& out = "run", const char* devices = "cpu") {
    options_.out = dir_ + "/" + out;
    options_.resume = false;
    std::filesystem::remove_all(options_.out);
    const auto result = TryRun(settings, devices);
    EXPECT_TRUE(result.ok()) << result.status();
    return Lines(options_.out + "/metrics.jsonl");
  }
  std::vector<ordered_json> Samples(const std::string& out = "run") const {
    return Lines(dir_ + "/" + out + "/samples.jsonl");
  }
  std::string Weights(int64_t step, const std::string& out = "run") const {
    return *io::ReadFile(dir_ + "/" + out + "/checkpoints/" + std::to_string(step) +
                         "/model.safetensors");
  }
  std::string Error(const std::vector<std::string>& settings) {
    options_.out = dir_ + "/refused";
    const auto result = TryRun(settings);
    EXPECT_FALSE(result.ok());
    EXPECT_FALSE(std::filesystem::exists(options_.out));
    return std::string(result.status().message());
  }
  // Without what a clock or an allocator says.
  static std::vector<ordered_json> Reproducible(std::vector<ordered_json> records) {
    for (ordered_json& record : records) {
      ordered_json kept;
      for (const auto& entry : record.items()) {
        const std::string& name = entry.key();
        if (name.starts_with("perf/") || name.starts_with("memory/") ||
            name.starts_with("checkpoint/")) {
          continue;
        }
        kept[name] = entry.value();
      }
      record = kept;
    }
    return records;
  }

  std::string dir_;
  std::string notes_;
  GrpoOptions options_;
  std::atomic<bool> stop_{false};
  static inline std::map<std::string, std::shared_ptr<runtime::Client>> clients_;
};

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_GRPO_RUN_FOR_TEST_H_
