#include "meshwright/hlo/live_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mw::hlo {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRanges = R"(HloLiveRange (max 3):
  BufferLiveRange:
    a{}:0-3
  Live ranges at 2 (peak):
    fusion.1{}: 64 bytes (cumulative: 64 bytes)
    param.3{}: 512 bytes (cumulative: 576 bytes)
    while.2{0}: 8 bytes (cumulative: 584 bytes)
    inner.4{}: 4 bytes (cumulative: 588 bytes)
    nothing{}: 0 bytes (cumulative: 588 bytes)
  Stack trace breakdown for peak usage: 584 bytes
    main (100.0%, total: 584 bytes)
)";

constexpr const char* kHlo = R"(HloModule m
%body {
  %inner.4 = f32[1]{0} parameter(5)
}
ENTRY %main {
  %param.3 = f32[16,8]{1,0:T(8,128)} parameter(5), metadata={op_name="w"}
  %while.2 = (f32[2]{0}, s32[]) while(%t), condition=%c, body=%b
  ROOT %fusion.1 = bf16[4,8]{1,0} fusion(%param.3), kind=kLoop, metadata={op_name="layers/mlp/mul"}
}
)";

TEST(LiveTensorsTest, TellsWhatTheyAre) {
  const auto tensors = ParseLiveTensors(kRanges, kHlo);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 4u);
  EXPECT_EQ((*tensors)[0].name, "param.3");
  EXPECT_EQ((*tensors)[0].bytes, 512);
  EXPECT_EQ((*tensors)[0].type, "f32[16,8]");
  EXPECT_EQ((*tensors)[0].parameter, 5);
  EXPECT_EQ((*tensors)[1].op_name, "layers/mlp/mul");
  EXPECT_EQ((*tensors)[1].type, "bf16[4,8]");
  EXPECT_EQ((*tensors)[1].parameter, -1);
  EXPECT_EQ((*tensors)[2].type, "");       // of a tuple
  EXPECT_EQ((*tensors)[3].parameter, -1);  // of the loop
  EXPECT_THAT(ParseLiveTensors("nothing", kHlo).status().ToString(), HasSubstr("no peak"));
}

}  // namespace
}  // namespace mw::hlo
