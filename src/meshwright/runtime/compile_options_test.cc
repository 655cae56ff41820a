#include "meshwright/runtime/compile_options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/xla_compile_options.pb.h"

namespace mw::runtime {
namespace {

TEST(CompileOptionsTest, WritesXlasFields) {
  CompileOptions options;
  options.num_replicas = 2;
  options.num_partitions = 3;
  options.device_ids = {10, 11, 12, 20, 21, 22};
  options.env_option_overrides = {
      {"d", 0.5}, {"s", std::string("x")}, {"b", true}, {"i", int64_t{7}}};
  auto bytes = options.Serialize();
  ASSERT_TRUE(bytes.ok());
  proto::CompileOptions message;
  ASSERT_TRUE(message.ParseFromString(*bytes));
  const auto& build = message.executable_build_options();
  EXPECT_EQ(build.num_replicas(), 2);
  EXPECT_EQ(build.num_partitions(), 3);
  EXPECT_TRUE(build.use_spmd_partitioning());
  ASSERT_EQ(build.device_assignment().computation_devices_size(), 3);
  EXPECT_THAT(build.device_assignment().computation_devices(1).replica_device_ids(),
              testing::ElementsAre(11, 21));
  EXPECT_EQ(message.env_option_overrides().at("i").int_field(), 7);
  EXPECT_EQ(message.env_option_overrides().at("d").double_field(), 0.5);
  EXPECT_TRUE(message.env_option_overrides().at("b").bool_field());
  EXPECT_EQ(message.env_option_overrides().at("s").string_field(), "x");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(*CompileOptions(options).Serialize(), *bytes);
}

// Field 4 after field 3.
TEST(CompileOptionsTest, WireBytesOfAPortableProgram) {
  CompileOptions options;
  options.portable = true;
  EXPECT_EQ(*options.Serialize(), std::string("\x1a\x06\x20\x01\x28\x01\x30\x01\x20\x01"));
}

// The first bytes by hand: field 3 {4: 1, 5: 1, 6: 1}.
TEST(CompileOptionsTest, WireBytesOfTheDefault) {
  EXPECT_EQ(*CompileOptions().Serialize(), std::string("\x1a\x06\x20\x01\x28\x01\x30\x01"));
}

TEST(CompileOptionsTest, Validates) {
  CompileOptions options;
  options.num_partitions = 0;
  EXPECT_FALSE(options.Validate().ok());
  options.num_partitions = 2;
  options.use_spmd_partitioning = false;
  EXPECT_FALSE(options.Serialize().ok());
  options.use_spmd_partitioning = true;
  EXPECT_TRUE(options.Validate().ok());
  options.device_ids = {0, 1, 2};
  EXPECT_FALSE(options.Validate().ok());
  options.device_ids = {1, 1};
  EXPECT_FALSE(options.Validate().ok());

  CompileOptions portable;
  portable.portable = true;
  EXPECT_TRUE(portable.Validate().ok());
  portable.device_ids = {1};
  EXPECT_FALSE(portable.Validate().ok());
  portable.device_ids.clear();
  portable.num_replicas = 2;
  EXPECT_FALSE(portable.Validate().ok());
}

}  // namespace
}  // namespace mw::runtime
