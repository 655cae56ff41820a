#include "meshwright/base/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace mw {
namespace {

TEST(ParallelForTest, CallsEveryIndexOnce) {
  for (int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    ParallelFor(count, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    for (const auto& number : calls) EXPECT_EQ(number, 1);
  }
}

}  // namespace
}  // namespace mw
