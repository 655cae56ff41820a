#include "meshwright/plan/kernel_plan.h"

#include <gtest/gtest.h>

namespace mw::plan {
namespace {

constexpr double kGib = 1 << 30;

TEST(ParseDoesNotFitTest, TheSizesThatACompilerNames) {
  const auto of = [](const char* message) {
    return ParseDoesNotFit(absl::ResourceExhaustedError(message));
  };
  const auto used =
      of("Used space is short. Ran out of memory: Used 120.5G of 94.75G hbm. Exceeded");
  ASSERT_TRUE(used);
  EXPECT_EQ(static_cast<double>(used->needed_bytes), 120.5 * kGib);
  EXPECT_EQ(static_cast<double>(used->capacity_bytes), 94.75 * kGib);
  const auto temporaries = of(
      "the total memory required for HLO temporaries (512.5G) exceeds available HBM (768.0M). HLO");
  ASSERT_TRUE(temporaries);
  EXPECT_EQ(static_cast<double>(temporaries->needed_bytes), 512.5 * kGib);
  EXPECT_EQ(temporaries->capacity_bytes, 768 << 20);
  // Other words are a refusal too, of which no more is known.
  for (const char* other : {"no room", "Used 7 of 5", "Used much of 5G hbm", "Used 7G of hbm"}) {
    const auto unknown = of(other);
    ASSERT_TRUE(unknown) << other;
    EXPECT_EQ(unknown->needed_bytes, 0) << other;
    EXPECT_EQ(unknown->message, other);
  }
  EXPECT_FALSE(ParseDoesNotFit(absl::InternalError("Used 7G of 5G hbm")));
  EXPECT_FALSE(ParseDoesNotFit(absl::OkStatus()));
}

}  // namespace
}  // namespace mw::plan
