#include "meshwright/core/philox.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace mw {
namespace {

// The known-answer vectors of philox4x32 with 10 rounds that Random123 publishes
// (tests/kat_vectors).
TEST(PhiloxTest, MatchesPublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, RowTakesEachWordOfEachBlockOnce) {
  std::vector<uint32_t> row(7);
  PhiloxRow({1, 2}, {.row = 3, .step = 4, .site = 5}, row);
  const PhiloxCounter block0 = Philox4x32({0, 3, 4, 5}, {1, 2});
  const PhiloxCounter block1 = Philox4x32({1, 3, 4, 5}, {1, 2});
  EXPECT_EQ(row, (std::vector<uint32_t>{block0[0], block1[0], block0[1], block1[1], block0[2],
                                        block1[2], block0[3]}));
}

TEST(PhiloxTest, PlacesDiffer) {
  std::set<uint32_t> first;
  for (const RandomPlace& place :
       {RandomPlace{}, RandomPlace{.row = 1}, RandomPlace{.step = 1}, RandomPlace{.site = 1}}) {
    std::vector<uint32_t> row(1);
    PhiloxRow({7, 0}, place, row);
    first.insert(row[0]);
  }
  EXPECT_EQ(first.size(), 4u);
}

TEST(PhiloxTest, UniformStaysBelowOne) {
  EXPECT_EQ(UniformFromBits(0), 0.0f);
  EXPECT_LT(UniformFromBits(0xffffffff), 1.0f);
}

}  // namespace
}  // namespace mw
