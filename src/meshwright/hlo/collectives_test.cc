#include "meshwright/hlo/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mw::hlo {
namespace {

using ::testing::HasSubstr;
using Groups = std::vector<std::vector<int64_t>>;

TEST(CollectivesTest, FindsThemInLoopsAndCalls) {
  const auto found = ParseCollectives(R"(HloModule m, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%called (x: f32[4]) -> f32[8] {
  %x = f32[4]{0} parameter(0)
  ROOT %g = f32[8]{0} all-gather(%x), channel_id=1, replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}
}

%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %y = f32[4]{0} get-tuple-element(%p), index=1
  %c = f32[8]{0} call(%y), to_apply=%called
  %r = f32[4]{0} reduce-scatter(%c), channel_id=2, replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=%add
  ROOT %t = (s32[], /*index=1*/f32[4]{0}) tuple(%i, %r)
}

%condition (q: (s32[], f32[4])) -> pred[] {
  %q = (s32[], f32[4]{0}) parameter(0)
  ROOT %n = pred[] constant(false)
}

ENTRY %main (z: (s32[], f32[4])) -> (s32[], f32[4]) {
  %z = (s32[], f32[4]{0}) parameter(0)
  %e = bf16[2]{0} constant({1, 2})
  %k = (bf16[2]{0}, bf16[2]{0}) all-reduce-start(%e, %e), replica_groups=[1,4]<=[4], to_apply=%add
  ROOT %w = (s32[], f32[4]{0}) while(%z), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"6"}}
}
)");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 3U);
  EXPECT_EQ((*found)[0].kind, "all-reduce");
  EXPECT_EQ((*found)[0].groups, (Groups{{0, 1, 2, 3}}));
  EXPECT_EQ((*found)[0].result_bytes, 8);
  EXPECT_EQ((*found)[1].kind, "all-gather");
  EXPECT_EQ((*found)[1].groups, (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ((*found)[1].trips, 6);
  EXPECT_EQ((*found)[2].kind, "reduce-scatter");
  EXPECT_EQ((*found)[2].groups, (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ((*found)[2].result_bytes, 16);
  EXPECT_EQ((*found)[2].trips, 6);
}

TEST(CollectivesTest, RefusesWhatItCannotCount) {
  const auto loop = ParseCollectives(R"(
%body (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %r = f32[4]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add
}

ENTRY %main (z: f32[4]) -> f32[4] {
  %z = f32[4]{0} parameter(0)
  ROOT %w = f32[4]{0} while(%z), condition=%body, body=%body
}
)");
  EXPECT_THAT(loop.status().ToString(), HasSubstr("loop w holds r and its trips cannot be told"));
  EXPECT_THAT(ParseReplicaGroups("[2,2]<=[3]").status().ToString(), HasSubstr("no known form"));
}

TEST(CollectivesTest, ReadsGroupsOfAMesh) {
  EXPECT_EQ(*ParseReplicaGroups("mesh['a'=4] {'a'}, use_global"), (Groups{{0, 1, 2, 3}}));
  EXPECT_EQ(*ParseReplicaGroups("mesh['a'=2,'b'=2] {'b'}"), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(*ParseReplicaGroups("mesh['a'=2,'b'=2] {'a'}"), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(*ParseReplicaGroups("mesh['a'=2,'b'=2] {'b','a'}"), (Groups{{0, 2, 1, 3}}));
  for (const char* text :
       {"mesh['a'=2] {'b'}", "mesh['a'=0] {'a'}", "mesh['a'=2", "mesh[a=2] {a}"}) {
    EXPECT_THAT(ParseReplicaGroups(text).status().ToString(), HasSubstr("no known form"));
  }
}

}  // namespace
}  // namespace mw::hlo
