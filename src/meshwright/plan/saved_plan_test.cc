#include "meshwright/plan/saved_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/plan/saved_plan_for_test.h"

namespace mw::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;
using Pointer = Json::json_pointer;

const Json& Sound() {
  static const auto* const kPlan = new Json(SavedPlanForTest(50, 3, 1 << 20));
  return *kPlan;
}

std::string Error(const std::string& text) {
  const auto plan = ParsePlan(text, "a.json");
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << plan.status();
  const std::string message(plan.status().message());
  EXPECT_THAT(message, StartsWith("a.json is "));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

// Of a plan with another value in one place.
std::string ErrorWith(const char* place, Json value) {
  Json plan = Sound();
  plan[Pointer(place)] = std::move(value);
  return Error(plan.dump());
}

TEST(SavedPlanTest, IsReadWhole) {
  const auto plan = ParsePlan(Sound().dump(2), "a.json");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(*plan, Sound());
  // One that a search holds has no model of its own.
  Json nameless = Sound();
  nameless.erase("model");
  EXPECT_TRUE(ParsePlan(nameless.dump(), "a.json").ok());
}

TEST(SavedPlanTest, OneThatDoesNotFitHasNoFigures) {
  Json plan = Sound();
  plan["kernels"]["accum_kernel"] = {{"count", 3}, {"fits", false}, {"census", nullptr}};
  for (const char* key : {"device_peak_gib", "modelled_ms_per_step", "exposed_ms_per_step",
                          "timeline_ms_per_step", "sent_bytes_per_step"}) {
    plan[key] = nullptr;
  }
  const auto read = ParsePlan(plan.dump(), "a.json");
  EXPECT_TRUE(read.ok()) << read.status();
}

TEST(SavedPlanTest, EveryCutIsNoticed) {
  const std::string text = Sound().dump();
  for (size_t size = 0; size < text.size(); size += 7) {
    EXPECT_THAT(Error(text.substr(0, size)), HasSubstr("no plan, or one that was cut"));
  }
}

TEST(SavedPlanTest, WhatIsNoPlan) {
  for (const char* text : {"[]", "3", "null", "{}", R"({"format": 3})", R"({"format": "other"})"}) {
    EXPECT_THAT(Error(text), HasSubstr("is no plan: `meshwright plan --json` prints one")) << text;
  }
  EXPECT_THAT(Error("\x80\xff"), HasSubstr("not valid JSON"));
  EXPECT_THAT(Error(R"({"model": "m", "ranked": []})"), HasSubstr("`plan --search` printed"));
}

TEST(SavedPlanTest, OtherFormatsAreToPlanAgain) {
  EXPECT_THAT(ErrorWith("/format", "meshwright-plan-99"),
              HasSubstr("of the format meshwright-plan-99, and this version reads "
                        "meshwright-plan-1: plan it again"));
  Json old = Sound();
  old.erase("format");
  EXPECT_THAT(Error(old.dump()), HasSubstr("states no format"));
}

// Whatever is compared: left out, and of another type.
TEST(SavedPlanTest, EveryFieldIsNeeded) {
  std::vector<std::string> places;
  for (const auto& [key, value] : Sound().items()) {
    if (key != "model" && key != "format") places.push_back("/" + key);
  }
  for (const auto& [key, value] : Sound()["kernels"]["accum_kernel"].items()) {
    places.push_back("/kernels/accum_kernel/" + key);
  }
  for (const auto& [key, value] : Sound()["kernels"]["accum_kernel"]["census"][0].items()) {
    places.push_back("/kernels/accum_kernel/census/0/" + key);
  }
  for (const std::string& place : places) {
    SCOPED_TRACE(place);
    const Pointer pointer(place);
    Json without = Sound();
    without[pointer.parent_pointer()].erase(pointer.back());
    EXPECT_THAT(Error(without.dump()), HasSubstr("a damaged plan: "));
    for (const Json& wrong : {Json(true), Json(-1), Json::object()}) {
      EXPECT_THAT(ErrorWith(place.c_str(), wrong), HasSubstr("a damaged plan: "));
    }
  }
  EXPECT_THAT(ErrorWith("/kernels/accum_kernel/count", "3"),
              HasSubstr("kernels.accum_kernel.count is \"3\", not a whole number"));
  EXPECT_THAT(ErrorWith("/kernels/accum_kernel/census/0/axes", {1}), HasSubstr("no list of names"));
  EXPECT_THAT(ErrorWith("/kernels/accum_kernel/census/0/trips", int64_t{1} << 52),
              HasSubstr("more than 2^53"));
  EXPECT_THAT(ErrorWith("/model", 1), HasSubstr("model is 1, not text"));
}

TEST(SavedPlanTest, ALostProgramIsMissed) {
  for (const char* name : {"first_kernel", "accum_kernel"}) {
    Json plan = Sound();
    plan["kernels"].erase(name);
    EXPECT_THAT(Error(plan.dump()), HasSubstr("it has 1 kernels, not 2"));
  }
  EXPECT_THAT(ErrorWith("/kernels", Json::object()), HasSubstr("no kernels"));
}

TEST(SavedPlanTest, TheStepIsTheSumOfItsPrograms) {
  EXPECT_THAT(ErrorWith("/modelled_ms_per_step", 15.3),
              HasSubstr("modelled_ms_per_step is 15.3, but its programs make 153"));
  EXPECT_THAT(ErrorWith("/device_peak_gib", 1.25), HasSubstr("its programs make 1.5"));
  EXPECT_THAT(ErrorWith("/sent_bytes_per_step", 1), HasSubstr("sent_bytes_per_step"));
  EXPECT_THAT(ErrorWith("/kernels/accum_kernel/modelled_ms", nullptr), HasSubstr("make none"));
}

}  // namespace
}  // namespace mw::plan
