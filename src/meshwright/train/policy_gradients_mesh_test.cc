// GRPO and its relatives on a mesh, against torch (tests/oracle/policy_gradients.py).
#include <gtest/gtest.h>

#include "meshwright/train/policy_gradients_for_test.h"

namespace mw::train {
namespace {

class PolicyGradientsMeshTest : public PolicyGradientsTest {};

// Each device has one row, and one of them none that counts.
TEST_F(PolicyGradientsMeshTest, EveryAlgorithmAndAggregation) {
  for (const PolicyCase& c : PolicyMatrix()) {
    if (!c.name.starts_with("grpo") && !c.name.ends_with("sequence-mean")) continue;
    Check(c, Make(c, "data=2,fsdp=2").get(), {{4}});
  }
}

TEST_F(PolicyGradientsMeshTest, OtherSettings) {
  for (const PolicyCase& c : OtherPolicyCases()) Check(c, Make(c, "data=2,fsdp=2").get(), {{4}});
}

// Rows of several sequences stay whole, each on one device.
TEST_F(PolicyGradientsMeshTest, PackedRows) {
  for (const PolicyCase& c : PolicyMatrix()) {
    if (!c.name.ends_with("sequence-mean") && c.name != "grpo_constant") continue;
    Check(Packed(c), Make(Packed(c), "data=2").get(), {{2}});
  }
  for (const PolicyCase& c : OtherPolicyCases()) {
    if (c.name == "importance_sequence") Check(Packed(c), Make(Packed(c), "data=2").get(), {{2}});
  }
}

}  // namespace
}  // namespace mw::train
