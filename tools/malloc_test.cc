// This program is linked with malloc.cc, as meshwright is.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace mw {
namespace {

constexpr size_t kLarge = size_t{64} << 20;

// Libraries that are loaded find it, in place of the C library's.
TEST(MallocTest, IsEveryones) {
  for (const auto& [name, function] : std::vector<std::pair<const char*, void*>>{
           {"malloc", reinterpret_cast<void*>(&malloc)},
           {"free", reinterpret_cast<void*>(&free)},
           {"calloc", reinterpret_cast<void*>(&calloc)},
           {"realloc", reinterpret_cast<void*>(&realloc)},
           {"aligned_alloc", reinterpret_cast<void*>(&aligned_alloc)},
           {"posix_memalign", reinterpret_cast<void*>(&posix_memalign)}}) {
    EXPECT_EQ(dlsym(RTLD_DEFAULT, name), function) << name;
    EXPECT_NE(dlsym(RTLD_NEXT, name), function) << name;
  }
}

TEST(MallocTest, LargeBlocksComeAgain) {
  void* first = nullptr;
  ASSERT_EQ(posix_memalign(&first, 64, kLarge), 0);
  EXPECT_GE(malloc_usable_size(first), kLarge);
  // What the compiler must not leave out because it is freed.
  static_cast<volatile char*>(first)[kLarge - 1] = 'x';
  // So long that it counts as in use.
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  free(first);
  void* const second = malloc(kLarge);
  EXPECT_EQ(second, first);
  EXPECT_EQ(static_cast<char*>(second)[kLarge - 1], 'x');
  free(second);
  auto* const zeros = static_cast<char*>(calloc(kLarge / 8, 8));
  EXPECT_EQ(zeros, first);
  EXPECT_TRUE(std::ranges::all_of(std::span(zeros, kLarge), [](char c) { return c == 0; }));
  free(zeros);
}

TEST(MallocTest, BlocksChangeTheirSize) {
  auto* numbers = static_cast<uint32_t*>(malloc(4000));
  EXPECT_LT(malloc_usable_size(numbers), 8000U);
  for (uint32_t i = 0; i < 1000; ++i) numbers[i] = i;
  for (const size_t bytes : {kLarge, kLarge - 4096, 2 * kLarge, size_t{5} << 20, size_t{4000}}) {
    numbers = static_cast<uint32_t*>(realloc(numbers, bytes));
    ASSERT_NE(numbers, nullptr);
    EXPECT_GE(malloc_usable_size(numbers), bytes);
    for (uint32_t i = 0; i < 1000; ++i) ASSERT_EQ(numbers[i], i) << bytes;
  }
  free(numbers);
  // The same of a block that was large from the start.
  numbers = static_cast<uint32_t*>(malloc(kLarge));
  for (uint32_t i = 0; i < 1000; ++i) numbers[i] = i;
  for (const size_t bytes : {3 * kLarge, size_t{4000}, kLarge}) {
    numbers = static_cast<uint32_t*>(reallocarray(numbers, bytes / 4, 4));
    for (uint32_t i = 0; i < 1000; ++i) ASSERT_EQ(numbers[i], i) << bytes;
  }
  EXPECT_EQ(realloc(numbers, 0), nullptr);
}

TEST(MallocTest, RefusesWhatIsImpossible) {
  // What the compiler must not know, or it would warn.
  volatile size_t most = SIZE_MAX;
  EXPECT_EQ(malloc(most), nullptr);
  EXPECT_EQ(calloc(most, 2), nullptr);
  EXPECT_EQ(calloc(most / 4, 3), nullptr);
  EXPECT_EQ(reallocarray(nullptr, most, 2), nullptr);
  void* block = nullptr;
  EXPECT_EQ(posix_memalign(&block, 3, kLarge), EINVAL);
  EXPECT_EQ(posix_memalign(&block, 64, most - kLarge), ENOMEM);
  EXPECT_EQ(block, nullptr);
  char* volatile kept = static_cast<char*>(malloc(kLarge));
  kept[0] = 'x';
  EXPECT_EQ(realloc(kept, most / 2), nullptr);
  EXPECT_EQ(kept[0], 'x');
  free(kept);
  free(nullptr);
}

TEST(MallocTest, AlignsBeyondItsOwnAlignment) {
  constexpr size_t kFar = size_t{16} << 20;
  void* const block = aligned_alloc(kFar, kLarge);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kFar, 0U);
  free(block);
}

TEST(MallocTest, ServesThreads) {
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      for (size_t i = 0; i < 200; ++i) {
        const size_t count = size_t{1} << (10 + (i + t) % 14);
        const auto mine = std::make_unique<size_t[]>(count);
        mine[0] = mine[count - 1] = t;
        std::this_thread::yield();
        ASSERT_EQ(mine[0], t);
        ASSERT_EQ(mine[count - 1], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mw
