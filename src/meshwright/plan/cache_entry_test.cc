#include "meshwright/plan/cache_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace mw::plan {
namespace {

using ::testing::HasSubstr;

constexpr const char* kKey = "00112233445566778899aabbccddeeff";

KernelPlan Plan() {
  KernelPlan plan;
  plan.memory.argument_bytes = 7;
  plan.flops = 0.1;  // its nearest double is written and read whole
  plan.fingerprint = "f";
  plan.compile_s = 1.5;
  return plan;
}

std::string Error(const std::string& entry, const char* key = kKey) {
  const auto plan = FromCacheEntry(entry, key);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kDataLoss) << plan.status();
  return std::string(plan.status().message());
}

TEST(CacheEntryTest, IsReadWhole) {
  const auto plan = FromCacheEntry(ToCacheEntry(Plan(), kKey), kKey);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(ToJson(*plan), ToJson(Plan()));
  KernelPlan large;
  large.does_not_fit = DoesNotFit{7, 5, "Used 7 of 5"};
  EXPECT_EQ(ToJson(*FromCacheEntry(ToCacheEntry(large, kKey), kKey)), ToJson(large));
}

TEST(CacheEntryTest, EveryFlippedBitAndEveryCutIsNoticed) {
  const std::string sound = ToCacheEntry(Plan(), kKey);
  for (size_t i = 0; i < sound.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = sound;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_THAT(Error(damaged), HasSubstr("checksum")) << i << ", bit " << bit;
    }
    EXPECT_THAT(Error(sound.substr(0, i)), HasSubstr("checksum")) << i;
  }
  EXPECT_EQ(Error(sound + " "), "has a wrong checksum");
}

TEST(CacheEntryTest, AnotherProgramsEntryIsNone) {
  EXPECT_EQ(Error(ToCacheEntry(Plan(), kKey), "ffeeddccbbaa99887766554433221100"),
            "has a wrong checksum");
}

// Versions without checksums wrote the plan alone, and read what is written now.
TEST(CacheEntryTest, ThoseOfEarlierVersions) {
  EXPECT_EQ(Error(ToJson(Plan()).dump()), "has no checksum");
  const auto read = KernelPlanFromJson(nlohmann::ordered_json::parse(ToCacheEntry(Plan(), kKey)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(Plan()));
}

}  // namespace
}  // namespace mw::plan
