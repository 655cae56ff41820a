// A sample of the matrix of meshes, rules and settings with the engine on virtual devices,
// where each case compiles four to six programs; mesh_matrix_test.cc has the whole.
//
//   MW_MESH_SEED=N   another sample
//   MW_MESH_CASE=…   one case, as a report of a failure names it
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/train/mesh_on_devices_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(MeshMatrixOnDevicesTest, ASampleGivesTheNumbersOfOneDevice) {
  if (const std::optional<MeshCase> one = AskedMeshCase()) {
    ASSERT_TRUE(IsLegal(*one)) << "these settings do not fit together: " << ToLine(*one);
    EXPECT_EQ(MeshReport(OnDevices(), *one), "");
    return;
  }
  const uint32_t seed = AskedMeshSeed();
  std::vector<MeshCase> cases = AllMeshCases();
  std::mt19937 random(seed);
  constexpr int kCases = 3;
  for (int i = 0; i < kCases; ++i) {
    const MeshCase& c = cases[random() % cases.size()];
    EXPECT_EQ(MeshReport(OnDevices(), c), "") << "MW_MESH_SEED=" << seed << ", case " << i + 1;
  }
}

TEST(MeshMatrixOnDevicesTest, AdaptersGiveTheNumbersOfOneDevice) {
  MeshCase c;
  c.mesh = "data=2,fsdp=2,tensor=2";
  c.num_micro_batches = 2;
  c.lora_rank = 3;
  EXPECT_EQ(MeshFault(OnDevices(), c), "");
}

TEST(MeshMatrixOnDevicesTest, OneTokenMoreIsSeen) {
  MeshCase c;
  c.mesh = "data=2";
  EXPECT_THAT(MeshFault(OnDevices(), c, /*learn_more=*/true), HasSubstr("the denominator is"));
  EXPECT_THAT(MeshFault(OnDevices(), c), IsEmpty());
}

}  // namespace
}  // namespace mw::train
