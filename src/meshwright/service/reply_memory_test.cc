#include "meshwright/service/reply_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace mw::service {
namespace {

StepReply Step(int64_t version) { return {.position = {version, 0, false, false}, .metrics = {}}; }

int64_t VersionOf(const ReplyMemory& memory, const std::string& id, const std::string& call) {
  const auto found = memory.Find(id, call);
  if (!found.ok() || *found == nullptr) return -1;
  return std::get<StepReply>(**found).position.policy_version;
}

TEST(ReplyMemoryTest, KeepsTheNewest) {
  ReplyMemory memory;
  for (int i = 0; i < 1000; ++i) memory.Remember("id-" + std::to_string(i), "call", Step(i));
  EXPECT_EQ(memory.size(), ReplyMemory::kMost);
  EXPECT_EQ(VersionOf(memory, "id-999", "call"), 999);
  EXPECT_EQ(VersionOf(memory, "id-744", "call"), 744);
  EXPECT_EQ(VersionOf(memory, "id-743", "call"), -1);
}

TEST(ReplyMemoryTest, AnIdIsOfOneCall) {
  ReplyMemory memory;
  memory.Remember("id", "a digest", Step(1));
  EXPECT_EQ(memory.Find("id", "another").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*memory.Find("other", "another"), nullptr);
  EXPECT_TRUE(ReplyMemory::CheckId(std::string(128, 'x')).ok());
  for (const std::string& id : {std::string(), std::string(129, 'x')}) {
    EXPECT_EQ(ReplyMemory::CheckId(id).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ReplyMemoryTest, StepsGoThroughACheckpoint) {
  ReplyMemory memory;
  StepReply reply{.position = {7, 2, true, false}, .metrics = train::MetricRecord{}};
  reply.metrics->step = 7;
  reply.metrics->Set("learning/loss", 0.1);
  reply.metrics->Set("nan", std::numeric_limits<double>::quiet_NaN());
  reply.metrics->Set("inf", -std::numeric_limits<double>::infinity());
  memory.Remember("step \xff", "s", reply);
  memory.Remember("plain", "p", Step(8));
  memory.Remember("staged", "t", StageReply{.position = {}, .handle = "staged-1"});
  memory.Remember("saved", "u", SaveReply{});

  const auto restored = ReplyMemory::FromJson(memory.ToJson());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->size(), 2u);
  EXPECT_EQ(VersionOf(*restored, "plain", "p"), 8);
  const auto step = std::get<StepReply>(**restored->Find("step \xff", "s"));
  EXPECT_EQ(step.position, reply.position);
  ASSERT_TRUE(step.metrics.has_value());
  EXPECT_EQ(step.metrics->step, 7);
  EXPECT_EQ(*step.metrics->Find("learning/loss"), 0.1);
  EXPECT_TRUE(std::isnan(*step.metrics->Find("nan")));
  EXPECT_EQ(*step.metrics->Find("inf"), -std::numeric_limits<double>::infinity());

  for (const char* damaged : {"", "{", "[1]", "[{\"id\": \"x\"}]"}) {
    EXPECT_EQ(ReplyMemory::FromJson(damaged).status().code(), absl::StatusCode::kDataLoss)
        << damaged;
  }
}

}  // namespace
}  // namespace mw::service
