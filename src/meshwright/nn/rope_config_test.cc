#include "meshwright/nn/rope_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mw::nn {
namespace {

RopeConfig Llama32() {
  RopeConfig rope;
  rope.theta = 500000.0;
  rope.type = RopeType::kLlama3;
  rope.factor = 32.0;
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  rope.original_max_position = 8192;
  return rope;
}

// Values of transformers' LlamaRotaryEmbedding for Llama-3.2-1B.
TEST(RopeConfigTest, Llama3ScalingOfLlama32) {
  const std::vector<float> f = RopeInverseFrequencies(Llama32(), 64);
  ASSERT_EQ(f.size(), 32u);
  const std::pair<int, double> expected[] = {{0, 1.0},          {14, 3.211446e-3},
                                             {15, 1.290548e-3}, {16, 4.295568e-4},
                                             {17, 9.708288e-5}, {31, 9.418307e-8}};
  for (const auto& [i, value] : expected) EXPECT_NEAR(f[i], value, 3e-7 * value) << i;
}

TEST(RopeConfigTest, LinearDividesAllAndDefaultNone) {
  RopeConfig rope;
  rope.theta = 500000.0;
  EXPECT_NEAR(RopeInverseFrequencies(rope, 64)[31], 3.013858e-6, 1e-12);
  RopeConfig linear = rope;
  linear.type = RopeType::kLinear;
  linear.factor = 4.0;
  for (int i = 0; i < 32; ++i) {
    EXPECT_FLOAT_EQ(RopeInverseFrequencies(linear, 64)[i], RopeInverseFrequencies(rope, 64)[i] / 4);
  }
  EXPECT_TRUE(RopeFreqFactors(rope, 64).empty());
}

TEST(RopeConfigTest, FactorsGiveTheSameFrequencies) {
  RopeConfig factors;
  factors.theta = 500000.0;
  factors.type = RopeType::kFreqFactors;
  factors.freq_factors = RopeFreqFactors(Llama32(), 64);
  EXPECT_NEAR(factors.freq_factors[0], 1.0, 1e-6);
  EXPECT_NEAR(factors.freq_factors[31], 32.0, 1e-4);
  const std::vector<float> a = RopeInverseFrequencies(factors, 64);
  const std::vector<float> b = RopeInverseFrequencies(Llama32(), 64);
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(a[i], b[i], 3e-7 * b[i]) << i;
}

TEST(RopeConfigTest, RefusesWhatHasNoFrequencies) {
  EXPECT_FALSE(RopeConfig{}.Validate(63).ok());
  EXPECT_FALSE(RopeConfig{}.Validate(0).ok());
  RopeConfig rope = Llama32();
  EXPECT_TRUE(rope.Validate(64).ok());
  rope.original_max_position = 0;
  EXPECT_FALSE(rope.Validate(64).ok());
  rope = Llama32();
  rope.high_freq_factor = 1.0;
  EXPECT_FALSE(rope.Validate(64).ok());
  rope = Llama32();
  rope.factor = 0;
  EXPECT_FALSE(rope.Validate(64).ok());
  rope = RopeConfig{};
  rope.theta = -1;
  EXPECT_FALSE(rope.Validate(64).ok());
  rope = RopeConfig{};
  rope.type = RopeType::kFreqFactors;
  rope.freq_factors = {1.0f};
  EXPECT_FALSE(rope.Validate(64).ok());
}

}  // namespace
}  // namespace mw::nn
