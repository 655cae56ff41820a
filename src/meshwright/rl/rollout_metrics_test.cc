// Metrics and advantages of samples against torch (tests/oracle/rollout_metrics.py).
#include "meshwright/rl/rollout_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "meshwright/rl/advantages.h"

namespace mw::rl {
namespace {

class RolloutMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(MW_SOURCE_DIR "/src/meshwright/rl/testdata/rollout_metrics.json");
    reference_ = nlohmann::json::parse(file);
    ASSERT_EQ(reference_["cases"].size(), 3u);
  }

  std::vector<std::string> Names() const { return reference_["names"]; }

  static std::vector<Rollout> RolloutsOf(const nlohmann::json& item,
                                         const std::vector<std::string>& names) {
    std::vector<Rollout> rollouts;
    for (size_t i = 0; i < item["rewards"].size(); ++i) {
      Rollout& rollout = rollouts.emplace_back();
      rollout.group = item["groups"][i];
      rollout.reward = item["rewards"][i];
      for (const std::string& name : names) rollout.reward_parts.push_back(item["parts"][name][i]);
      rollout.prompt_tokens = 3;
      rollout.ids.resize(3 + item["lengths"][i].get<size_t>());
      rollout.finish_reason = item["truncated"][i].get<bool>() ? train::FinishReason::kLength
                                                               : train::FinishReason::kStop;
    }
    return rollouts;
  }

  nlohmann::json reference_;
};

TEST_F(RolloutMetricsTest, AreAsTorchHasThem) {
  for (const auto& item : reference_["cases"]) {
    const std::vector<Rollout> rollouts = RolloutsOf(item, Names());
    train::MetricRecord record;
    AddRolloutMetrics(rollouts, Names(), record);
    AddEvalMetrics(rollouts, Names(), record);
    const auto advantages =
        ComputeAdvantages(item["groups"].get<std::vector<int64_t>>(),
                          item["rewards"].get<std::vector<double>>(), AdvantageOptions{});
    ASSERT_TRUE(advantages.ok()) << advantages.status();
    record.Set("rl/frac_reward_zero_std", advantages->zero_std_fraction());
    EXPECT_EQ(record.values.size(), item["metrics"].size());
    for (const auto& [name, value] : record.values) {
      ASSERT_TRUE(item["metrics"].contains(name)) << name;
      const double expected = item["metrics"][name];
      // Both are sums in float64 of at most 40 numbers.
      EXPECT_NEAR(value, expected, 1e-12 * std::max(1.0, std::abs(expected))) << name;
    }
  }
}

TEST_F(RolloutMetricsTest, AdvantagesAreAsTorchHasThem) {
  const std::map<std::string, AdvantageOptions> modes = {
      {"std_ddof1", {.mode = "std", .std_ddof = 1, .eps = reference_["eps"]}},
      {"std_ddof0", {.mode = "std", .std_ddof = 0, .eps = reference_["eps"]}},
      {"none", {.mode = "none"}},
      {"rloo", {.mode = "rloo"}}};
  for (const auto& item : reference_["cases"]) {
    for (const auto& [name, options] : modes) {
      const auto advantages =
          ComputeAdvantages(item["groups"].get<std::vector<int64_t>>(),
                            item["rewards"].get<std::vector<double>>(), options);
      ASSERT_TRUE(advantages.ok()) << advantages.status();
      for (size_t i = 0; i < advantages->values.size(); ++i) {
        const double expected = item["advantages"][name][i];
        EXPECT_NEAR(advantages->values[i], expected, 2e-7 * std::max(1.0, std::abs(expected)))
            << name << " of sample " << i;
      }
    }
  }
}

}  // namespace
}  // namespace mw::rl
