// The whole matrix of meshes, rules and settings against one device, mesh by mesh.
#include <gtest/gtest.h>

#include <set>

#include "meshwright/train/mesh_case_for_test.h"

namespace mw::train {
namespace {

std::vector<std::string> Meshes() {
  std::set<std::string> meshes;
  for (const MeshCase& c : AllMeshCases()) meshes.insert(c.mesh);
  return {meshes.begin(), meshes.end()};
}

class MeshMatrixSlowTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MeshMatrixSlowTest, GivesTheNumbersOfOneDevice) {
  for (const MeshCase& c : AllMeshCases()) {
    if (c.mesh != GetParam()) continue;
    EXPECT_EQ(MeshReport(c), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshMatrixSlowTest, ::testing::ValuesIn(Meshes()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace mw::train
