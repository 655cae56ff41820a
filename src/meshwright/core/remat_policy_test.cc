#include "meshwright/core/remat_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mw {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(RematPolicyTest, NamedPoliciesBecomeRegionPolicies) {
  EXPECT_EQ(*ParseRematPolicy("none"), "none");
  EXPECT_EQ(*ParseRematPolicy("full"), "full");
  EXPECT_EQ(*ParseRematPolicy("minimal"), "names:q,k,v,attn_out,mlp_in");
  EXPECT_EQ(*ParseRematPolicy("save_dot_except_mlp"), "names:q,k,v,attn_out,out_proj");
  EXPECT_EQ(*ParseRematPolicy("names:mlp_up,,q,"), "names:mlp_up,q");
}

TEST(RematPolicyTest, NamesOfAPolicy) {
  EXPECT_THAT(RematPolicyNames("names:q,mlp_up"), ElementsAre("q", "mlp_up"));
  EXPECT_THAT(RematPolicyNames("names:"), IsEmpty());
  EXPECT_THAT(RematPolicyNames("full"), IsEmpty());
}

TEST(RematPolicyTest, UnknownTextIsAnErrorWithTheList) {
  for (const char* text : {"", "Full", "names:", "names:,", "mlp_up"}) {
    const auto policy = ParseRematPolicy(text);
    ASSERT_FALSE(policy.ok()) << text;
    EXPECT_THAT(std::string(policy.status().message()), HasSubstr("attn_out")) << text;
  }
  EXPECT_THAT(std::string(ParseRematPolicy("names:q,mlp_upp").status().message()),
              HasSubstr("the nearest is \"mlp_up\""));
}

}  // namespace
}  // namespace mw
