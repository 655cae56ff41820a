#include "meshwright/runtime/device_spec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mw::runtime {
namespace {

std::string Error(std::string_view text) {
  auto spec = ParseDeviceSpec(text);
  EXPECT_FALSE(spec.ok()) << text;
  return spec.ok() ? ""
                   : std::string(spec.status().message().data(), spec.status().message().size());
}

TEST(DeviceSpecTest, Parses) {
  EXPECT_EQ(*ParseDeviceSpec("cpu"), (DeviceSpec{"cpu", 0}));
  EXPECT_EQ(*ParseDeviceSpec("cpu:8"), (DeviceSpec{"cpu", 8}));
  EXPECT_EQ(*ParseDeviceSpec("cpu-xla:2"), (DeviceSpec{"cpu-xla", 2}));
  EXPECT_EQ(*ParseDeviceSpec("tpu"), (DeviceSpec{"tpu", 0}));
  EXPECT_EQ(*ParseDeviceSpec("/a/b.so"), (DeviceSpec{"/a/b.so", 0}));
  EXPECT_EQ(*ParseDeviceSpec("/a:7/b.so"), (DeviceSpec{"/a:7/b.so", 0}));
  EXPECT_EQ(*ParseDeviceSpec("b.so:4"), (DeviceSpec{"b.so", 4}));
  EXPECT_EQ(ParseDeviceSpec("cpu:8")->ToString(), "cpu:8");
}

TEST(DeviceSpecTest, RejectsWithTheReason) {
  using testing::HasSubstr;
  EXPECT_THAT(Error("cup"), HasSubstr("the nearest is \"cpu\""));
  EXPECT_THAT(Error(""), HasSubstr("unknown device ''"));
  for (const char* text :
       {"cpu:", "cpu:0", "cpu:-1", "cpu:x", "cpu:8x", "cpu:99999999999", "cpu:5000"}) {
    EXPECT_THAT(Error(text), HasSubstr("1..4096")) << text;
  }
  EXPECT_THAT(Error("tpu:4"), HasSubstr("only CPU plugins"));
  EXPECT_THAT(Error("gpu:1"), HasSubstr("use 'gpu'"));
}

}  // namespace
}  // namespace mw::runtime
