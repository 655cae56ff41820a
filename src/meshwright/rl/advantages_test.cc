#include "meshwright/rl/advantages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mw::rl {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr double kInf = std::numeric_limits<double>::infinity();

Advantages Of(const std::vector<int64_t>& groups, const std::vector<double>& rewards,
              const AdvantageOptions& options = {}) {
  auto result = ComputeAdvantages(groups, rewards, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : Advantages();
}

std::string Error(const std::vector<int64_t>& groups, const std::vector<double>& rewards,
                  const AdvantageOptions& options = {}) {
  return std::string(ComputeAdvantages(groups, rewards, options).status().message());
}

// What tunix, TRL and the papers make of rewards 1, 0, 0, 1.
TEST(AdvantagesTest, ModesOfOneGroup) {
  const struct {
    AdvantageOptions options;
    float value;
  } cases[] = {
      {{.std_ddof = 1, .eps = 1e-6}, 0.866024f},
      {{.std_ddof = 1, .eps = 1e-4}, 0.865875f},
      {{.std_ddof = 0, .eps = 1e-6}, 0.999998f},
      {{.mode = "rloo"}, 0.666667f},
      {{.mode = "none"}, 0.5f},
  };
  for (const auto& [options, a] : cases) {
    EXPECT_THAT(Of({7, 7, 7, 7}, {1, 0, 0, 1}, options).values,
                Pointwise(::testing::FloatNear(1e-6f), {a, -a, -a, a}))
        << options.mode << options.std_ddof << options.eps;
  }
}

TEST(AdvantagesTest, GroupsAreByIdWhereverTheirRowsAre) {
  const Advantages apart = Of({5, 9, 5, -2, 9, 5}, {1, 4, 0, 3, 8, 5}, {.mode = "none"});
  EXPECT_THAT(apart.values, ElementsAre(-1, -2, -2, 0, 2, 3));
  EXPECT_EQ(apart.num_groups, 3);
  EXPECT_EQ(apart.num_zero_std_groups, 1);
  EXPECT_EQ(apart.zero_std_fraction(), 1.0 / 3);
  const Advantages together = Of({5, 5, 5, 9, 9, -2}, {1, 0, 5, 4, 8, 3}, {.mode = "none"});
  EXPECT_THAT(together.values, ElementsAre(-1, -2, 3, -2, 2, 0));
  // Groups of other sizes are not mixed: by position these would be (1, 4) and (0, 3).
  EXPECT_THAT(Of({5, 9, 5, 9}, {1, 4, 1, 4}).values, Each(0.0f));
}

TEST(AdvantagesTest, GroupsOfOneRewardHaveNone) {
  for (const char* mode : {"std", "none", "rloo"}) {
    for (const int64_t ddof : {0, 1}) {
      const AdvantageOptions keep = {.mode = mode, .std_ddof = ddof, .eps = 0};
      AdvantageOptions drop = keep;
      drop.zero_std = "drop";
      const std::vector<int64_t> groups = {1, 1, 1, 2, 3, 3};
      const std::vector<double> rewards = {0.1, 0.1, 0.1, 8, 0, 1};
      const Advantages kept = Of(groups, rewards, keep);
      EXPECT_THAT(std::vector<float>(kept.values.begin(), kept.values.begin() + 4), Each(0.0f));
      EXPECT_THAT(kept.kept, Each(true));
      EXPECT_GT(kept.values[5], 0);
      EXPECT_EQ(kept.num_zero_std_groups, 2);
      const Advantages dropped = Of(groups, rewards, drop);
      EXPECT_EQ(dropped.values, kept.values);
      EXPECT_THAT(dropped.kept, ElementsAre(false, false, false, false, true, true));
    }
  }
}

// In float32 E[x²] - E[x]² of these leaves a variance of 2.2e-8 where there is none.
TEST(AdvantagesTest, RewardsThatAgreeLeaveNoResidue) {
  const std::vector<int64_t> group(8, 0);
  for (const double reward : {0.35, static_cast<double>(0.35f), 1e6 + 0.35, 1e-9}) {
    std::vector<double> rewards(8, reward);
    EXPECT_THAT(Of(group, rewards, {.eps = 0}).values, Each(0.0f)) << reward;
    rewards[3] = 0;
    const Advantages split = Of(group, rewards);
    for (const float value : split.values) EXPECT_LE(std::abs(value), 2.5f) << reward;
  }
  // What differs by less than eps has hardly any advantage.
  std::vector<double> rewards(8, 0.35);
  rewards[0] += 1e-12;
  for (const float value : Of(group, rewards).values) EXPECT_LE(std::abs(value), 1e-5f);
}

TEST(AdvantagesTest, Errors) {
  EXPECT_THAT(Error({1, 1}, {1, kInf}), HasSubstr("row 1, of group 1, is inf"));
  EXPECT_THAT(Error({1, 1}, {std::nan(""), 0}), HasSubstr("row 0"));
  EXPECT_THAT(Error({1, 1}, {1}), HasSubstr("1 rewards for 2 rows"));
  EXPECT_THAT(Error({}, {}, {.mode = "stdd"}), HasSubstr("advantage.mode"));
  EXPECT_THAT(Error({}, {}, {.std_ddof = 2}), HasSubstr("advantage.std_ddof 2"));
  EXPECT_THAT(Error({}, {}, {.eps = -1}), HasSubstr("advantage.eps"));
  EXPECT_THAT(Error({}, {}, {.eps = kInf}), HasSubstr("advantage.eps"));
  EXPECT_THAT(Error({}, {}, {.zero_std = "count"}), HasSubstr("advantage.zero_std"));
  EXPECT_EQ(Of({}, {}).zero_std_fraction(), 0);
}

HostTensor F32(const Dims& dims, const std::vector<float>& values) {
  HostTensor tensor = HostTensor::Empty(DType::kF32, dims);
  std::ranges::copy(values, tensor.mutable_as<float>().begin());
  return tensor;
}

TEST(RewardsLessKlTest, SumsOverTheTokensThatCount) {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const HostTensor mask = F32({2, 3}, {0, 1, 1, 0.5f, 0, 0});
  const HostTensor old = F32({2, 3}, {nan, -1, -1, -1, nan, -3});
  const HostTensor ref = F32({2, 3}, {0, -1.5f, -1.5f, -1.5f, 0, nan});
  const std::vector<double> rewards = {1, 2};
  const std::pair<const char*, double> cases[] = {{"k1", 0.5}, {"k2", 0.125}, {"k3", 0.106531}};
  for (const auto& [estimator, kl] : cases) {
    train::GrpoOptions options;
    options.kl_coef = 0.1;
    options.kl_estimator = estimator;
    const auto less = RewardsLessKl(rewards, old, ref, mask, options);
    ASSERT_TRUE(less.ok()) << less.status();
    EXPECT_NEAR((*less)[0], 1 - 0.1 * 2 * kl, 1e-7) << estimator;
    EXPECT_NEAR((*less)[1], 2 - 0.1 * kl, 1e-7) << estimator;
  }
  // exp(89) is infinite in float32.
  train::GrpoOptions options;
  options.kl_coef = 1;
  const HostTensor far = F32({1, 1}, {-89}), one = F32({1, 1}, {1}), zero = F32({1, 1}, {0});
  const auto bounded = RewardsLessKl(std::vector<double>{0}, far, zero, one, options);
  EXPECT_NEAR((*bounded)[0], -(std::exp(20.0) - 21), 1e-3);
  EXPECT_THAT(std::string(RewardsLessKl(rewards, old, one, mask, options).status().message()),
              HasSubstr("must be f32 [2, tokens]"));
  EXPECT_FALSE(RewardsLessKl(std::vector<double>{1}, old, ref, mask, options).ok());
}

}  // namespace
}  // namespace mw::rl
