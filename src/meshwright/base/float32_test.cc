#include "meshwright/base/float32.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace mw {
namespace {

TEST(FitsFloat32, TakesZeroAndNormalNumbersOnly) {
  for (const double value : {0.0, -0.0, 1.0, -1e-8, 1.18e-38, -3.4e38}) {
    EXPECT_TRUE(FitsFloat32(value)) << value;
  }
  const double inf = std::numeric_limits<double>::infinity();
  for (const double value : {1.17e-38, -1e-60, 5e-324, 3.5e38, -1e39, inf, -inf, std::nan("")}) {
    EXPECT_FALSE(FitsFloat32(value)) << value;
  }
}

TEST(CheckFloat32, NamesTheSettingAndItsValue) {
  EXPECT_TRUE(CheckFloat32("rate", 1e-5).ok());
  const absl::Status status = CheckFloat32("rate", 1e39);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()).rfind("rate 1e+39 ", 0), 0u) << status.message();
}

}  // namespace
}  // namespace mw
