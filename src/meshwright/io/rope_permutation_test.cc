#include "meshwright/io/rope_permutation.h"

#include <fmt/format.h>

#include "meshwright/io/safetensors.h"
#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

TEST(RopePermutationTest, AgreesWithConvertHfToGguf) {
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(TestData("rope.safetensors")));
  for (const char* name : {"weight", "bias"}) {
    ASSERT_OK_AND_ASSIGN(const HostTensor hf, file->Read(name));
    for (const int heads : {1, 2, 3, 6}) {
      ASSERT_OK_AND_ASSIGN(const HostTensor gguf, file->Read(fmt::format("{}.{}", name, heads)));
      ASSERT_OK_AND_ASSIGN(const HostTensor permuted, PermuteRope(hf, heads));
      EXPECT_EQ(BytesOf(permuted), BytesOf(gguf)) << name << heads;
      ASSERT_OK_AND_ASSIGN(const HostTensor back, UnpermuteRope(gguf, heads));
      EXPECT_EQ(BytesOf(back), BytesOf(hf)) << name << heads;
      EXPECT_EQ(back.dims(), hf.dims());
    }
  }
}

TEST(RopePermutationTest, RefusesShapesThatDoNotSplit) {
  for (const auto& [dims, heads] : std::vector<std::pair<Dims, int>>{
           {{24, 3}, 5}, {{24, 3}, 24}, {{}, 1}, {{24}, 0}, {{24}, -1}}) {
    const auto result = PermuteRope(HostTensor::Zeros(DType::kF32, dims), heads);
    EXPECT_STATUS(result.status(), absl::StatusCode::kInvalidArgument,
                  ::testing::HasSubstr("multiple of twice the heads"));
  }
  EXPECT_OK(PermuteRope(HostTensor::Zeros(DType::kF32, {4, 0}), 2).status());
}

}  // namespace
}  // namespace mw::io
