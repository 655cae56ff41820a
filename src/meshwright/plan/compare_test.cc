#include "meshwright/plan/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "meshwright/plan/saved_plan_for_test.h"

namespace mw::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Json Plan(double ms, int64_t count, int64_t bytes) { return SavedPlanForTest(ms, count, bytes); }

TEST(CompareTest, SaysHowTheyDiffer) {
  const Json comparison = Compare(Plan(99, 3, 1 << 20), Plan(21, 7, 1 << 20));
  const Json& ms = comparison.at("step").at("modelled_ms_per_step");
  EXPECT_EQ(ms.at("difference"), -150);
  EXPECT_EQ(ms.at("ratio"), 0.5);
  EXPECT_TRUE(comparison.at("step").at("mfu").at("a").is_null());
  EXPECT_EQ(comparison.at("kernels").at("accum_kernel").at("count").at("b"), 7);
  ASSERT_EQ(comparison.at("census").size(), 1u);
  EXPECT_EQ(comparison.at("census")[0].at("a"), 3 * 2 * 28);
  EXPECT_EQ(comparison.at("census")[0].at("b_bytes"), int64_t{7} * 28 << 20);
  const std::string text = CompareText(comparison);
  EXPECT_THAT(text, HasSubstr("first_kernel: alike"));
  EXPECT_THAT(text, HasSubstr("all_gather"));
  EXPECT_THAT(CompareText(Compare(Plan(1, 1, 1), Plan(2, 1, 1))), HasSubstr("collectives: alike"));
}

// One that does not fit has no times; a program may be missing.
TEST(CompareTest, TakesWhatIsThere) {
  Json small = Plan(1, 1, 1);
  small["kernels"].erase("accum_kernel");
  small["modelled_ms_per_step"] = nullptr;
  small["kernels"]["first_kernel"] = {{"count", 1}, {"fits", false}, {"census", nullptr}};
  small.erase("model");
  const Json comparison = Compare(small, Plan(1, 1, 1));
  EXPECT_TRUE(comparison.at("kernels").at("accum_kernel").at("count").at("a").is_null());
  EXPECT_TRUE(comparison.at("step").at("modelled_ms_per_step").at("ratio").is_null());
  EXPECT_EQ(comparison.at("a"), "tpu7x:2x2x1, mesh fsdp=8, rules default");
  EXPECT_EQ(comparison.at("b"), "m on tpu7x:2x2x1, mesh fsdp=8, rules default");
  EXPECT_THAT(CompareText(comparison), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace mw::plan
