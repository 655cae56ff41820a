#include "meshwright/base/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mw {
namespace {

TEST(BFloat16, EveryBitPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = BFloat16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(value))));
    } else {
      EXPECT_EQ(FloatToBFloat16(value), bits);
    }
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(FloatToBFloat16(1.0f + 0x1p-8f), 0x3f80);  // tie, even below
  EXPECT_EQ(FloatToBFloat16(1.0f + 0x3p-8f), 0x3f82);  // tie, even above
  EXPECT_EQ(FloatToBFloat16(1.0f + 0x1.01p-8f), 0x3f81);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(Float16, EveryBitPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Float16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Float16ToFloat(FloatToFloat16(value))));
    } else {
      EXPECT_EQ(FloatToFloat16(value), bits) << value;
    }
  }
}

TEST(Float16, AgreesWithTheCompilersHalf) {
  // _Float16 is the compiler's IEEE binary16; a walk over float bit patterns with a stride
  // that is coprime to the mantissa hits ties, subnormals and overflow.
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 65521) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(FloatToFloat16(value), std::bit_cast<uint16_t>(static_cast<_Float16>(value)))
        << value;
  }
}

}  // namespace
}  // namespace mw
