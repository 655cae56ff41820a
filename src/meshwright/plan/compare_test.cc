#include "meshwright/plan/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace mw::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Json Plan(double ms, int64_t count, int64_t bytes) {
  return {{"model", "m"},
          {"topology", "tpu7x:2x2x1"},
          {"mesh", "fsdp=8"},
          {"rules", "default"},
          {"device_peak_gib", 1.5},
          {"modelled_ms_per_step", ms},
          {"kernels",
           {{"first_kernel", {{"count", 1}, {"modelled_ms", 3.0}, {"census", Json::array()}}},
            {"accum_kernel",
             {{"count", count},
              {"modelled_ms", ms / 2},
              {"census",
               {{{"kind", "all_gather"},
                 {"axes", {"fsdp"}},
                 {"group_size", 8},
                 {"count", 2},
                 {"trips", 28},
                 {"bytes", bytes}}}}}}}}};
}

TEST(CompareTest, SaysHowTheyDiffer) {
  const auto comparison = Compare(Plan(100, 3, 1 << 20), Plan(50, 7, 1 << 20));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  const Json& ms = comparison->at("step").at("modelled_ms_per_step");
  EXPECT_EQ(ms.at("difference"), -50);
  EXPECT_EQ(ms.at("ratio"), 0.5);
  EXPECT_TRUE(comparison->at("step").at("mfu").at("a").is_null());
  EXPECT_EQ(comparison->at("kernels").at("accum_kernel").at("count").at("b"), 7);
  ASSERT_EQ(comparison->at("census").size(), 1u);
  EXPECT_EQ(comparison->at("census")[0].at("a"), 3 * 2 * 28);
  EXPECT_EQ(comparison->at("census")[0].at("b_bytes"), int64_t{7} * 28 << 20);
  const std::string text = CompareText(*comparison);
  EXPECT_THAT(text, HasSubstr("first_kernel: alike"));
  EXPECT_THAT(text, HasSubstr("all_gather"));
  EXPECT_THAT(CompareText(*Compare(Plan(1, 1, 1), Plan(2, 1, 1))), HasSubstr("collectives: alike"));
}

// One that does not fit has no times; a program may be missing.
TEST(CompareTest, TakesWhatIsThere) {
  Json small = Plan(1, 1, 1);
  small["kernels"].erase("accum_kernel");
  small["modelled_ms_per_step"] = nullptr;
  small["kernels"]["first_kernel"] = {{"count", 1}, {"fits", false}, {"census", nullptr}};
  const auto comparison = Compare(small, Plan(1, 1, 1));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_TRUE(comparison->at("kernels").at("accum_kernel").at("count").at("a").is_null());
  EXPECT_TRUE(comparison->at("step").at("modelled_ms_per_step").at("ratio").is_null());
  EXPECT_THAT(CompareText(*comparison), Not(HasSubstr("nan")));
  EXPECT_THAT(Compare(Json::object(), small).status().ToString(),
              HasSubstr("two plans of one step each"));
}

}  // namespace
}  // namespace mw::plan
