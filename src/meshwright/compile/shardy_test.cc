#include "meshwright/compile/shardy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/compile/program.h"
#include "meshwright/ops/constrain.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/reshard.h"

namespace mw::compile {
namespace {

using ::testing::HasSubstr;

// x * x, pinned twice, into the donated second argument's buffer.
absl::StatusOr<Program> Build(const Dims& dims, const PartitionSpec& input,
                              const PartitionSpec& middle) {
  PartitionOptions options;
  options.mesh = *Mesh::Create({{"data", 2}, {"tensor", 4}, {"fsdp", 1}});
  options.rules =
      spmd::LogicalRules({{"activation_batch", {"data", "fsdp"}}, {"activation_mlp", {"tensor"}}});
  options.automatic = true;
  return BuildProgram(
      "test",
      [&](graph::Graph& g) {
        const graph::Value x = g.AddParameter(TensorType(DType::kF32, dims), "x");
        g.AddParameter(TensorType(DType::kF32, dims), "old");
        const std::vector<std::string> axes = {"activation_batch", "activation_mlp"};
        g.SetOutputs({ops::Reshard(ops::Constrain(ops::Mul(x, x), axes, axes), middle)}, {"y"});
        g.Donate(1, 0);
        Boundary boundary;
        boundary.inputs = {input, {}};
        boundary.outputs = {{}};
        return boundary;
      },
      options);
}

TEST(ShardyTest, AnnotatesWhatIsPinned) {
  const auto program = Build({4, 8}, {{{"data"}}, {}, {}}, {{{}, {"tensor", "data"}}, {}, {}});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->automatic);
  EXPECT_FALSE(program->has_coordinates);
  EXPECT_TRUE(program->inputs[0].type.spec == PartitionSpec({{{"data"}}, {}, {}}));
  EXPECT_EQ(
      program->stablehlo,
      R"(module @test attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=2, "tensor"=4, "fsdp"=1]>
  func.func public @main(%arg0: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %arg1: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>, tf.aliasing_output = 0 : i32}) -> (tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<4x8xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"data"}, {"tensor"}]> : tensor<4x8xf32>
    %2 = sdy.sharding_constraint %1 <@mesh, [{}, {"tensor", "data"}]> : tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  }
}
)");
}

TEST(ShardyTest, RefusesWhatCannotBeSaid) {
  const PartitionSpec sum = {{}, {"data"}, {}};
  for (const auto& program : {Build({4, 8}, sum, {}), Build({4, 8}, {}, sum)}) {
    EXPECT_EQ(program.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(program.status().message()),
                HasSubstr("is a partial sum over data, which shard_mode=auto cannot express"));
  }
  EXPECT_THAT(std::string(Build({4, 6}, {}, {}).status().message()),
              HasSubstr("which 4 (tensor) does not divide"));
  EXPECT_THAT(std::string(Build({3, 8}, {{{"data"}}, {}, {}}, {}).status().message()),
              HasSubstr("dim 0 of size 3 is not a multiple of 2"));
}

}  // namespace
}  // namespace mw::compile
