// Every program of a step of both families under every layout: its census is what the TPU
// compiler's text of it holds.
#include "meshwright/train/tpu_census_for_test.h"

namespace mw::train {
namespace {

class TpuCensusSlowTest : public ::testing::TestWithParam<TpuCensusCase> {};

TEST_P(TpuCensusSlowTest, IsWhatTheCompiledProgramHolds) { ExpectTpuCensus(GetParam()); }

std::vector<TpuCensusCase> AllCases() {
  std::vector<TpuCensusCase> cases;
  for (const char* model : {"tiny-llama", "tiny-qwen3"}) {
    for (const Layout& layout :
         {Layout{.mesh = "data=8"}, Layout{.mesh = "data=8", .zero1 = true},
          Layout{.mesh = "fsdp=8"}, Layout{.mesh = "data=2,fsdp=4"},
          Layout{.mesh = "fsdp=2,tensor=4"}, Layout{.mesh = "data=2,tensor=4"},
          Layout{.mesh = "data=2,tensor=4", .rules = "tp-sequence"},
          Layout{.mesh = "fsdp=8", .rules = "fsdp-vocab"},
          Layout{.mesh = "fsdp=8", .gather = "update", .reduce = "fsdp=update"}}) {
      cases.push_back({model, layout, {"first", "accum", "update", "eval"}});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layouts, TpuCensusSlowTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) { return TpuCensusName(info.param); });

}  // namespace
}  // namespace mw::train
