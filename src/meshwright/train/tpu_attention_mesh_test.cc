// Flash attention in programs as the TPU compiler makes them: its kernels are in them as often
// as the remat policy says, on each device's own heads and rows, and nothing of the size of the
// scores is. Compiled ahead of time: no TPU is needed, but libtpu is.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "meshwright/train/tpu_census_for_test.h"

namespace mw::train {
namespace {

constexpr int64_t kTokens = 384;  // of no other size in the model

struct TpuAttentionCase {
  const char* mesh;
  const char* remat_policy;
  const char* attention;
  DType compute;
  int forward_kernels;  // in the text; a loop over layers holds one for all of them
  int backward_kernels;
};

// How many lines of the program call a kernel with so many results.
int CountKernels(const std::string& hlo, int num_results) {
  int count = 0;
  std::istringstream lines(hlo);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("custom_call_target=\"tpu_custom_call\"") == std::string::npos) continue;
    const std::string types = line.substr(0, line.find(" custom-call("));
    count += std::ranges::count(types, '[') == num_results ? 1 : 0;
  }
  return count;
}

class TpuAttentionMeshTest : public ::testing::TestWithParam<TpuAttentionCase> {};

TEST_P(TpuAttentionMeshTest, KernelsReplaceTheScores) {
  const TpuAttentionCase& c = GetParam();
  const auto topology = TpuTopology();
  ASSERT_TRUE(topology.ok()) << topology.status();
  if (!*topology) GTEST_SKIP() << "the libtpu wheel is not unpacked";
  const auto model = TinyModel("tiny-qwen3", [](models::ModelConfig& config) {
    config.vocab_size = 1024;
    config.hidden_size = 256;
    config.num_heads = 8;
    config.num_kv_heads = 4;
    config.head_dim = 64;
    config.mlp_size = 512;
  });
  EngineOptions options = LayoutOptions({.mesh = c.mesh, .compute = c.compute});
  options.loss.head_chunk_tokens = 128;
  options.model.remat_policy = c.remat_policy;
  options.model.attention = c.attention;
  options.target.platform = "tpu";
  // The control that scores would be found needs no gradient.
  const BatchShape shape{8, kTokens};
  const auto program = c.backward_kernels > 0 ? BuildAccumKernel(*model, options, shape)
                                              : BuildEvalKernel(*model, options, shape);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto hlo = TpuHlo(**topology, *program);
  ASSERT_TRUE(hlo.ok()) << hlo.status();
  EXPECT_EQ(CountKernels(*hlo, 2), c.forward_kernels);   // out, log-sum-exp
  EXPECT_EQ(CountKernels(*hlo, 3), c.backward_kernels);  // dk, dv, dq
  const bool scores = hlo->find("384,384") != std::string::npos;
  if (c.forward_kernels > 0) {
    EXPECT_FALSE(scores);
  } else {
    EXPECT_TRUE(scores);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, TpuAttentionMeshTest,
    ::testing::Values(TpuAttentionCase{"fsdp=8", "full", "auto", DType::kBF16, 2, 1},
                      TpuAttentionCase{"data=2,tensor=4", "none", "auto", DType::kF32, 1, 1},
                      TpuAttentionCase{"fsdp=8", "full", "plain", DType::kBF16, 0, 0}),
    [](const auto& info) {
      std::string name =
          fmt::format("{}_{}_{}", info.param.mesh, info.param.remat_policy, info.param.attention);
      for (char& ch : name) ch = std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
      return name;
    });

}  // namespace
}  // namespace mw::train
