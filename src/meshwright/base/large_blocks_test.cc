#include "meshwright/base/large_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

namespace mw {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class LargeBlocksTest : public ::testing::Test {
 protected:
  char* Allocate(size_t mib, bool zeros = false) {
    auto* const block = static_cast<char*>(blocks_->Allocate(mib * kMiB, zeros));
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % LargeBlocks::kAlignment, 0U);
    return block;
  }

  // So long that what is in use counts as the most.
  static void Last() { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }

  // Too large for a stack.
  std::unique_ptr<LargeBlocks> blocks_ = std::make_unique<LargeBlocks>();
};

TEST_F(LargeBlocksTest, GivesABlockAgainToWhoNeedsAsMuch) {
  char* const block = Allocate(100);
  EXPECT_EQ(blocks_->SizeOf(block), 100 * kMiB);
  Last();
  std::fill_n(block, 100 * kMiB, 'x');
  EXPECT_TRUE(blocks_->Free(block));
  EXPECT_EQ(blocks_->SizeOf(block), 0U);
  EXPECT_EQ(blocks_->kept(), 100 * kMiB);
  EXPECT_EQ(Allocate(95), block);
  EXPECT_EQ(block[42], 'x');
  EXPECT_TRUE(blocks_->Free(block));
  char* const zeros = Allocate(100, /*zeros=*/true);
  EXPECT_EQ(zeros, block);
  EXPECT_TRUE(std::ranges::all_of(std::span(zeros, 100 * kMiB), [](char c) { return c == 0; }));
}

TEST_F(LargeBlocksTest, FitsTightly) {
  char* const large = Allocate(100);
  char* const small = Allocate(64);
  Last();
  blocks_->Free(large);
  blocks_->Free(small);
  EXPECT_EQ(Allocate(60), small);
  // A third of the block would be idle.
  EXPECT_NE(Allocate(66), large);
}

TEST_F(LargeBlocksTest, KeepsNoMoreThanWasInUseAtOnce) {
  char* const first = Allocate(64);
  char* const second = Allocate(32);
  Last();
  blocks_->Free(first);
  blocks_->Free(second);
  EXPECT_EQ(blocks_->kept(), 96 * kMiB);
  // 96 in all: of the oldest as much as this one needs.
  Allocate(48);
  EXPECT_EQ(blocks_->kept(), 32 * kMiB);
  Allocate(200);
  EXPECT_EQ(blocks_->kept(), 0U);
  EXPECT_EQ(blocks_->in_use(), 248 * kMiB);
}

// Of two programs the second may ask before the first has given back.
TEST_F(LargeBlocksTest, WaitsForABlockThatIsAboutToComeBack) {
  char* const first = Allocate(64);
  Last();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(blocks_->Free(first));
  });
  EXPECT_EQ(Allocate(64), first);
  other.join();
}

TEST_F(LargeBlocksTest, KeepsNothingBesideItsSuccessor) {
  char* const first = Allocate(64);
  Last();
  char* const next = Allocate(64);
  EXPECT_TRUE(blocks_->Free(first));
  EXPECT_EQ(blocks_->in_use(), 64 * kMiB);
  EXPECT_EQ(blocks_->kept(), 0U);
  EXPECT_TRUE(blocks_->Free(next));
  EXPECT_EQ(blocks_->kept(), 64 * kMiB);
  // Two that stay are another matter.
  char* const again = Allocate(64);
  char* const beside = Allocate(32);
  Last();
  EXPECT_TRUE(blocks_->Free(beside));
  EXPECT_TRUE(blocks_->Free(again));
  EXPECT_EQ(blocks_->kept(), 96 * kMiB);
}

TEST_F(LargeBlocksTest, LeavesOthersAlone) {
  int local = 0;
  void* const aligned = std::aligned_alloc(LargeBlocks::kAlignment, LargeBlocks::kAlignment);
  for (const void* other : {static_cast<const void*>(nullptr), static_cast<const void*>(&local),
                            static_cast<const void*>(aligned)}) {
    EXPECT_FALSE(blocks_->Free(other));
    EXPECT_EQ(blocks_->SizeOf(other), 0U);
  }
  char* const block = Allocate(8);
  EXPECT_FALSE(blocks_->Free(block + LargeBlocks::kAlignment));
  EXPECT_TRUE(blocks_->Free(block));
  EXPECT_FALSE(blocks_->Free(block));
  std::free(aligned);
}

TEST_F(LargeBlocksTest, RefusesMoreThanThereIs) {
  EXPECT_EQ(blocks_->Allocate(SIZE_MAX, false), nullptr);
  EXPECT_EQ(blocks_->Allocate(size_t{1} << 60, false), nullptr);
  EXPECT_EQ(blocks_->in_use(), 0U);
}

// Thousands at a time, in any order: none is lost, none is given twice, and all have their size.
TEST_F(LargeBlocksTest, FindsEveryBlock) {
  std::mt19937 random(7);
  std::vector<std::pair<char*, size_t>> mine;
  size_t in_use = 0, most = 0;
  for (int i = 0; i < 20000; ++i) {
    if (mine.size() < 2000 && random() % 3 != 0) {
      const size_t mib = 4 + 2 * (random() % 8);
      char* const block = Allocate(mib);
      const size_t bytes = blocks_->SizeOf(block);
      ASSERT_GE(bytes, mib * kMiB);
      block[0] = 1;
      mine.emplace_back(block, bytes);
      in_use += bytes;
    } else if (!mine.empty()) {
      std::swap(mine[random() % mine.size()], mine.back());
      ASSERT_EQ(blocks_->SizeOf(mine.back().first), mine.back().second);
      ASSERT_TRUE(blocks_->Free(mine.back().first));
      in_use -= mine.back().second;
      mine.pop_back();
    }
    most = std::max(most, in_use);
    ASSERT_EQ(blocks_->in_use(), in_use);
    ASSERT_LE(blocks_->in_use() + blocks_->kept(), most + most / 64);
  }
  std::ranges::sort(mine);
  for (size_t i = 1; i < mine.size(); ++i) {
    ASSERT_GE(mine[i].first, mine[i - 1].first + mine[i - 1].second);
  }
}

TEST_F(LargeBlocksTest, HasAnEnd) {
  size_t count = 0;
  while (blocks_->Allocate(LargeBlocks::kSmallest, false) != nullptr) ++count;
  EXPECT_EQ(count, 8192U);
}

}  // namespace
}  // namespace mw
