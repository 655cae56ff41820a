#include "meshwright/train/sampling_rows.h"

#include <gtest/gtest.h>

#include <set>

namespace mw::train {
namespace {

TEST(RoundUpRowsTest, WastesLittleAndGivesFewNumbers) {
  for (const int64_t limit : {1, 7, 48, 64, 1000}) {
    std::set<int64_t> numbers;
    for (int64_t rows = 1; rows <= limit; ++rows) {
      const int64_t rounded = RoundUpRows(rows, limit);
      EXPECT_GE(rounded, rows);
      EXPECT_LE(rounded, limit);
      EXPECT_LT((rounded - rows) * 5, rounded) << rows;
      EXPECT_EQ(RoundUpRows(rounded, limit), rounded) << rows;
      numbers.insert(rounded);
    }
    // Four between a power of two and the next.
    EXPECT_LE(std::ssize(numbers), 4 * 10) << limit;
  }
  EXPECT_EQ(RoundUpRows(33, 64), 40);
  EXPECT_EQ(RoundUpRows(33, 36), 36);
  EXPECT_EQ(RoundUpRows(32, 64), 32);
}

}  // namespace
}  // namespace mw::train
