#include "meshwright/hlo/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mw::hlo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// A loop of three trips, whose body gathers under a product, and a computation that is called
// and was not scheduled. 1000 cycles are a millisecond of this clock.
constexpr const char* kDump = R"(
hlo_module {
  name: "m"
  entry_computation_name: "main"
  computations {
    name: "condition"
    id: 1
    root_id: 13
    instructions { name: "p" opcode: "parameter" id: 10 }
    instructions { name: "i" opcode: "get-tuple-element" id: 11 operand_ids: 10 tuple_index: 1 }
    instructions { name: "n" opcode: "constant" id: 12 literal { s32s: 3 } }
    instructions {
      name: "less" opcode: "compare" id: 13 operand_ids: 11 operand_ids: 12
      comparison_direction: "LT"
    }
  }
  computations {
    name: "body"
    id: 2
    root_id: 23
    instructions { name: "all-gather.1.call-start" opcode: "async-start" id: 20
                   metadata { op_name: "layers/w" } }
    instructions { name: "dot" opcode: "fusion" id: 21 operand_ids: 20 }
    instructions { name: "all-gather.1.call-done" opcode: "async-done" id: 22 operand_ids: 20 }
    instructions { name: "kernel" opcode: "custom-call" id: 23 operand_ids: 22
                   custom_call_target: "tpu_custom_call" }
  }
  computations {
    name: "called_spmd.sunk"
    id: 3
    root_id: 30
    instructions { name: "c" opcode: "fusion" id: 30 }
  }
  computations {
    name: "main"
    id: 4
    root_id: 45
    instructions { name: "zero" opcode: "constant" id: 40 literal { } }
    instructions { name: "x" opcode: "parameter" id: 41 }
    instructions { name: "t" opcode: "tuple" id: 42 operand_ids: 41 operand_ids: 40 }
    instructions { name: "loop" opcode: "while" id: 43 operand_ids: 42
                   called_computation_ids: 2 called_computation_ids: 1 }
    instructions { name: "call" opcode: "call" id: 44 called_computation_ids: 3 }
    instructions { name: "last" opcode: "fusion" id: 45 a_field_of_later_versions: 7 }
  }
}
computation_schedules {
  computation_id: 2
  instructions { id: 20 end_timestamp_cycles: 1 }
  instructions { id: 21 start_timestamp_cycles: 1 end_timestamp_cycles: 301 }
  instructions { id: 22 start_timestamp_cycles: 501 end_timestamp_cycles: 502 }
  instructions { id: 23 start_timestamp_cycles: 502 end_timestamp_cycles: 602 }
  scheduler_statistics { total_wasted_cycles: 200 total_cycles: 602 }
  cycles_per_microsecond: 1
}
computation_schedules {
  computation_id: 4
  instructions { id: 43 start_timestamp_cycles: 0 end_timestamp_cycles: 1206 }
  instructions { id: 44 start_timestamp_cycles: 1206 end_timestamp_cycles: 1207 }
  instructions { id: 45 start_timestamp_cycles: 1207 end_timestamp_cycles: 1300 }
  scheduler_statistics { total_cycles: 1290 }
  cycles_per_microsecond: 1
}
)";

constexpr const char* kFinal = R"(HloModule m

%called.7 (p: f32[]) -> f32[] {
  %c = f32[] add(%p, %p), backend_config={"window_config":{"estimated_cycles":"40"}}
  ROOT %d = f32[] copy(%c), backend_config={"window_config":{"estimated_cycles":"9223372036854775807"}}
}
)";

TEST(ScheduleTest, AddsUpLoopsAndCalls) {
  const auto schedule = ParseSchedule(kDump, kFinal);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  // The entry's 1290 without its loop's 1206 and its call's 1, three bodies, one call.
  EXPECT_DOUBLE_EQ(schedule->modelled_ms, 1e-3 * (1290 - 1207 + 3 * 602 + 40));
  EXPECT_DOUBLE_EQ(schedule->exposed_ms, 1e-3 * 3 * 200);
  EXPECT_DOUBLE_EQ(schedule->timeline_ms, 1e-3 * (1300 - 1207 + 3 * 602 + 40));
  EXPECT_THAT(schedule->custom_calls, ElementsAre(Pair("tpu_custom_call", 1e-3 * 300)));
  EXPECT_TRUE(schedule->unknown.empty());

  ASSERT_EQ(schedule->computations.size(), 2u);
  EXPECT_EQ(schedule->computations[0].name, "main");
  EXPECT_EQ(schedule->computations[0].trips, 1);
  EXPECT_EQ(schedule->computations[0].ops[0].inner, 1);
  EXPECT_EQ(schedule->computations[1].trips, 3);
  ASSERT_EQ(schedule->computations[1].ops.size(), 4u);
  EXPECT_DOUBLE_EQ(schedule->computations[1].ops[1].end_ms, 0.301);

  ASSERT_EQ(schedule->transfers.size(), 1u);
  EXPECT_EQ(schedule->transfers[0].kind, "all-gather");
  EXPECT_EQ(schedule->transfers[0].op_name, "layers/w");
  EXPECT_DOUBLE_EQ(schedule->transfers[0].window_ms, 1e-3 * 3 * 500);
  EXPECT_DOUBLE_EQ(schedule->transfers[0].hidden_ms, 1e-3 * 3 * 300);
}

TEST(ScheduleTest, TellsWhatItDoesNotKnow) {
  const auto schedule = ParseSchedule(kDump, "");
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_THAT(schedule->unknown, ElementsAre("called_spmd.sunk"));
}

TEST(ScheduleTest, WithoutAsynchronousOpsThereAreEstimatesOnly) {
  const std::string text = R"(HloModule m

%body (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %k = f32[] custom-call(%p), custom_call_target="tpu_custom_call", backend_config={"estimated_cycles":"30"}
  ROOT %f = f32[] fusion(%k), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"70"}}
}

ENTRY %main.2 (p: f32[]) -> f32[] {
  %p.1 = f32[] parameter(0)
  %w = f32[] while(%p.1), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"4"}}
  ROOT %g = f32[] fusion(%w), backend_config={"window_config":{"estimated_cycles":"500"}}
}
)";
  const auto schedule = ParseSchedule("", text, 2);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_DOUBLE_EQ(schedule->modelled_ms, 1e-3 * (500 + 4 * 100) / 2);
  EXPECT_THAT(schedule->custom_calls, ElementsAre(Pair("tpu_custom_call", 1e-3 * 120 / 2)));
  EXPECT_TRUE(schedule->unknown.empty());
  EXPECT_TRUE(schedule->computations.empty());
  std::string unstated = text;
  unstated.replace(unstated.find("known_trip_count"), 5, "other");
  EXPECT_THAT(ParseSchedule("", unstated, 2)->unknown, ElementsAre("w"));
}

TEST(ScheduleTest, RefusesWhatIsNoSchedule) {
  EXPECT_THAT(ParseSchedule("", "").status().ToString(), HasSubstr("left no schedule"));
  EXPECT_THAT(ParseSchedule("hlo_module {", "").status().ToString(),
              HasSubstr("cannot be read: line 1"));
  std::string other_loop = kDump;
  other_loop.replace(other_loop.find("\"LT\""), 4, "\"GE\"");
  EXPECT_THAT(ParseSchedule(other_loop, kFinal).status().ToString(),
              HasSubstr("the trips of loop loop cannot be told: its condition is no comparison"));
  std::string from_one = kDump;
  from_one.replace(from_one.find("literal { }"), 11, "literal { s32s: 1 }");
  EXPECT_THAT(ParseSchedule(from_one, kFinal).status().ToString(),
              HasSubstr("does not start at the constant 0"));
}

}  // namespace
}  // namespace mw::hlo
