// The whole matrix of meshes, rules and settings against one device, on the evaluator.
#include <gtest/gtest.h>

#include "meshwright/train/mesh_evaluated_for_test.h"

namespace mw::train {
namespace {

TEST(MeshMatrixSlowTest, EveryCaseGivesTheNumbersOfOneDevice) {
  double worst = 0;
  const std::vector<MeshCase> cases = AllMeshCases();
  for (const MeshCase& c : cases) EXPECT_EQ(MeshReport(Evaluated(), c, &worst), "");
  fmt::print("{} cases, the largest relative difference {:.3g}\n", cases.size(), worst);
}

}  // namespace
}  // namespace mw::train
