// Ahead-of-time compilation for TPUs that are not there.
#include "meshwright/runtime/topology.h"

#include "gmock/gmock.h"
#include "meshwright/runtime/test_util.h"

namespace mw::runtime {
namespace {

using testing::HasSubstr;

TEST(TopologyTest, CompilesForTpu) {
  auto plugin = Plugin::Load("tpu");
  if (plugin.status().code() == absl::StatusCode::kNotFound) {
    GTEST_SKIP() << "the libtpu wheel is not unpacked: " << plugin.status().ToString();
  }
  MW_ASSERT_OK(plugin);
  EXPECT_STREQ(std::getenv("TPU_SKIP_MDS_QUERY"), "1");
  auto topology = Topology::Create(*plugin, "tpu7x:2x2x1");
  MW_ASSERT_OK(topology);
  EXPECT_EQ(topology->platform_name(), "tpu");
  EXPECT_EQ(topology->num_devices(), 8);  // 4 chips of 2

  CompileOptions options;
  options.num_partitions = 8;
  auto exe = topology->Compile(
      R"(module @tpu { func.func public @main(%a: tensor<8x128xf32> {tf.aliasing_output = 0 : i32}) -> tensor<8x128xf32> {
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8x128xf32>) -> tensor<8x128xf32>
    return %0 : tensor<8x128xf32> } })",
      options);
  MW_ASSERT_OK(exe);
  auto stats = exe->MemoryStats();
  MW_ASSERT_OK(stats);
  EXPECT_EQ(stats->argument_bytes, 8 * 128 * 4);
  EXPECT_EQ(stats->alias_bytes, 8 * 128 * 4);
  EXPECT_EQ((*exe->OutputTypes())[0].ToString(), "f32[8,128]");
  auto bytes = exe->Serialize();
  MW_ASSERT_OK(bytes);
  EXPECT_FALSE(bytes->empty());
  auto program = exe->Optimized();
  MW_ASSERT_OK(program);
  EXPECT_THAT(program->bytes, HasSubstr("all-reduce"));

  options.num_partitions = 16;
  EXPECT_THAT(Message(topology->Compile("", options).status()), HasSubstr("has 8 devices"));
  EXPECT_THAT(Message(Topology::Create(*plugin, "tpu99:1x1").status()), HasSubstr("tpu99:1x1"));
  ClientOptions wrong;
  wrong.num_devices = 4;
  EXPECT_THAT(Message(Client::Create(*plugin, wrong).status()), HasSubstr("plugin 'tpu'"));
}

}  // namespace
}  // namespace mw::runtime
