#include "meshwright/spmd/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "meshwright/core/graph_error.h"

namespace mw::spmd {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Mesh MakeMesh(std::vector<MeshAxis> axes) {
  const auto mesh = Mesh::Create(std::move(axes));
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return mesh.value_or(Mesh());
}

// Against flax; see tests/oracle/logical_rules.py.
TEST(LogicalRulesTest, AgreesWithFlax) {
  std::ifstream file(MW_SOURCE_DIR "/src/meshwright/spmd/testdata/logical_rules_reference.json");
  const json reference = json::parse(file);
  int num_sharded = 0;
  int num_backward = 0;
  for (const json& c : reference["cases"]) {
    std::vector<MeshAxis> mesh_axes;
    for (const auto& [name, size] : c["mesh"].items()) {
      mesh_axes.push_back({name, size.get<int64_t>()});
    }
    std::vector<LogicalRule> rules;
    for (const json& rule : c["rules"]) rules.push_back({rule[0], rule[1]});
    std::vector<std::string> axes;
    for (const json& axis : c["axes"]) axes.push_back(axis.is_null() ? "" : axis);
    const Mesh mesh = MakeMesh(mesh_axes);
    const PartitionSpec spec = LogicalRules(rules).Resolve(axes, mesh);
    EXPECT_EQ(json(spec.dims), c["spec"]) << c;
    num_sharded += !spec.IsReplicated();
    // The negative control: the order of the rules matters in these cases.
    std::ranges::reverse(rules);
    num_backward += json(LogicalRules(rules).Resolve(axes, mesh).dims) != c["spec"];
  }
  EXPECT_GT(num_sharded, 75);
  EXPECT_GT(num_backward, 30);
}

TEST(LogicalRulesTest, RulesComeBeforeDims) {
  const LogicalRules rules(
      {{"mlp", {"tensor"}}, {"embed", {"tensor", "fsdp"}}, {"embed", {"fsdp"}}});
  const Mesh mesh = MakeMesh({{"fsdp", 2}, {"tensor", 2}});
  EXPECT_THAT(rules.Resolve({"embed", "mlp"}, mesh).dims,
              ElementsAre(ElementsAre("fsdp"), ElementsAre("tensor")));
  EXPECT_THAT(rules.Resolve({"embed"}, mesh).dims, ElementsAre(ElementsAre("tensor", "fsdp")));
}

TEST(LogicalRulesTest, AbsentAxesAreDroppedBeforeConflicts) {
  const LogicalRules rules({{"experts", {"context", "expert"}}, {"embed", {"fsdp", "context"}}});
  EXPECT_THAT(rules.Resolve({"experts", "embed"}, MakeMesh({{"fsdp", 2}, {"expert", 2}})).dims,
              ElementsAre(ElementsAre("expert"), ElementsAre("fsdp")));
  EXPECT_THAT(rules.Resolve({"experts", "embed"}, MakeMesh({{"fsdp", 2}, {"context", 2}})).dims,
              ElementsAre(ElementsAre("context"), IsEmpty()));
}

TEST(LogicalRulesTest, AnEmptyRuleSettlesItsDim) {
  const LogicalRules rules(
      {{"embed", {}}, {"embed", {"fsdp"}}, {"mlp", {"tensor"}}, {"mlp", {"fsdp"}}});
  const Mesh mesh = MakeMesh({{"fsdp", 2}});
  EXPECT_THAT(rules.Resolve({"embed", "mlp"}, mesh).dims, ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(LogicalRulesTest, DimsWithoutARuleStayWhole) {
  const LogicalRules rules({{"embed", {"fsdp"}}, {"", {"fsdp"}}});
  const Mesh mesh = MakeMesh({{"fsdp", 2}});
  EXPECT_THAT(rules.Resolve({"", "other", "embed", ""}, mesh).dims,
              ElementsAre(IsEmpty(), IsEmpty(), ElementsAre("fsdp"), IsEmpty()));
  EXPECT_THAT(rules.Resolve({}, mesh).dims, IsEmpty());
  EXPECT_TRUE(rules.Resolve({"embed"}, Mesh()).IsReplicated());
  EXPECT_TRUE(rules.Has("embed"));
  EXPECT_FALSE(rules.Has("other"));
}

TEST(LogicalRulesTest, RefusesOneNameForTwoDims) {
  try {
    LogicalRules(std::vector<LogicalRule>{{"embed", {"fsdp"}}})
        .Resolve({"embed", "mlp", "embed"}, Mesh());
    FAIL();
  } catch (const GraphError& error) {
    EXPECT_THAT(error.what(), HasSubstr("dims 0 and 2 are both embed"));
  }
}

}  // namespace
}  // namespace mw::spmd
