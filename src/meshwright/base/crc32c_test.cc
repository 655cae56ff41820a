#include "meshwright/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace mw {
namespace {

// The vectors of RFC 3720, appendix B.4.
TEST(Crc32cTest, VectorsOfTheStandard) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending.push_back(static_cast<char>(i));
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

// What TensorBoard 2.21.0's masked_crc32c gives.
TEST(Crc32cTest, MaskedAsTfRecordsHaveIt) {
  EXPECT_EQ(MaskedCrc32c("123456789"), 0xc78ab0e5u);
  EXPECT_EQ(MaskedCrc32c(std::string(32, '\0')), 0x0fd7fffau);
  EXPECT_EQ(MaskedCrc32c(""), 0xa282ead8u);
}

}  // namespace
}  // namespace mw
