// The census of a program is what the TPU compiler's text of it holds: every collective,
// over the same groups, in loops of the same trips, with the same bytes, and no other. The
// whole table of layouts and programs is tpu_census_slow_test.cc's.
#include "meshwright/train/tpu_census_for_test.h"

namespace mw::train {
namespace {

class TpuCensusMeshTest : public ::testing::TestWithParam<TpuCensusCase> {};

TEST_P(TpuCensusMeshTest, IsWhatTheCompiledProgramHolds) { ExpectTpuCensus(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Layouts, TpuCensusMeshTest,
    ::testing::Values(
        TpuCensusCase{.layout = {.mesh = "data=8"}, .kernels = {"update"}},
        TpuCensusCase{.layout = {.mesh = "data=8", .zero1 = true}, .kernels = {"update"}},
        TpuCensusCase{.layout = {.mesh = "fsdp=8"}, .kernels = {"accum", "eval"}},
        TpuCensusCase{.layout = {.mesh = "data=2,fsdp=4"}, .kernels = {"update"}},
        TpuCensusCase{.layout = {.mesh = "data=2,tensor=4"}, .kernels = {"first"}},
        TpuCensusCase{.layout = {.mesh = "fsdp=8", .gather = "update", .reduce = "fsdp=update"},
                      .kernels = {"first", "update"}},
        TpuCensusCase{.model = "tiny-qwen3", .layout = {.mesh = "fsdp=8"}, .kernels = {"accum"}}),
    [](const auto& info) { return TpuCensusName(info.param); });

// What the compiler changes, were these programs as small as they look: a small
// reduce-scatter becomes an all-reduce and a slice. And at the default precision what goes
// into a product travels as bfloat16, half the bytes.
TEST(TpuChangesTest, SmallReduceScattersAndDefaultPrecision) {
  const auto topology = TpuTopology();
  ASSERT_TRUE(topology.ok()) << topology.status();
  if (!*topology) GTEST_SKIP() << "the libtpu wheel is not unpacked";
  const auto model = TinyModel("tiny-llama", [](models::ModelConfig& c) { c.vocab_size = 136; });
  const auto program = BuildKernel("accum", *model, LayoutOptions({.mesh = "fsdp=8"}));
  ASSERT_TRUE(program.ok()) << program.status();
  const CensusTally tpu = TallyOf(CollectivesOf(TpuHlo(**topology, *program)));
  int64_t num_scatters = 0;
  for (const auto& [key, amount] : TallyOf(program->census, program->mesh)) {
    auto [kind, groups, trips] = key;
    const bool scatter = kind == "reduce-scatter";
    if (scatter) kind = "all-reduce";
    num_scatters += scatter ? amount.count : 0;
    const auto it = tpu.find({kind, groups, trips});
    ASSERT_NE(it, tpu.end()) << ToString(tpu);
    EXPECT_EQ(it->second.count, amount.count) << kind;
    if (scatter) {
      EXPECT_EQ(it->second.bytes, 2 * amount.bytes);
    } else {
      EXPECT_LE(it->second.bytes, amount.bytes) << kind;
      EXPECT_GE(2 * it->second.bytes, amount.bytes) << kind;
    }
  }
  EXPECT_GT(num_scatters, 0);
}

}  // namespace
}  // namespace mw::train
