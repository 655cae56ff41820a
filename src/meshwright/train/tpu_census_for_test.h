// Whether the census of a step's programs is what the TPU compiler's text of them holds.
// Compiled ahead of time: no TPU is needed, but libtpu is.
#ifndef MESHWRIGHT_TRAIN_TPU_CENSUS_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_TPU_CENSUS_FOR_TEST_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/runtime/topology.h"
#include "meshwright/train/mesh_layouts_for_test.h"

namespace mw::train {

// 4 chips, 8 devices; nullopt without the libtpu wheel.
inline absl::StatusOr<std::optional<runtime::Topology>> TpuTopology() {
  auto plugin = runtime::Plugin::Load("tpu");
  if (plugin.status().code() == absl::StatusCode::kNotFound) return std::nullopt;
  MW_RETURN_IF_ERROR(plugin.status());
  MW_ASSIGN_OR_RETURN(runtime::Topology topology,
                      runtime::Topology::Create(*plugin, "tpu7x:2x2x1"));
  return topology;
}

// The text of the compiled program, of all-reduces that stay as many as they are.
inline absl::StatusOr<std::string> TpuHlo(const runtime::Topology& topology,
                                          const compile::Program& program) {
  const DumpFolder folder;
  runtime::CompileOptions options;
  options.num_partitions = program.mesh.num_devices();
  options.use_shardy = true;  // as the engine does
  options.env_option_overrides = {{"xla_dump_to", folder.path()},
                                  {"xla_dump_hlo_as_text", true},
                                  {"xla_jf_crs_combiner_threshold_in_bytes", int64_t{0}}};
  MW_RETURN_IF_ERROR(topology.Compile(program.stablehlo, options).status());
  return folder.OptimizedHlo();
}

// Three layers, but not so thin that a reduce-scatter is small enough to become an
// all-reduce.
inline std::unique_ptr<models::Model> TinyTpuModel(const std::string& preset) {
  return TinyModel(preset, [](models::ModelConfig& c) {
    c.vocab_size = 1024;
    c.hidden_size = 256;
    c.num_heads = c.num_kv_heads = 4;
    c.head_dim = 64;
    c.mlp_size = 512;
  });
}

struct TpuCensusCase {
  const char* model = "tiny-llama";
  Layout layout;
  std::vector<const char*> kernels;
};

inline std::string TpuCensusName(const TpuCensusCase& c) {
  return fmt::format("{}_{}", std::string(c.model).substr(5), LayoutName(c.layout));
}

// What the compiler makes of a reduce-scatter and a gather of a KiB or less, here those of
// the last norm under Zero-1: all-reduces. The census after that change.
inline CensusTally SmallOnesAllReduced(CensusTally tally, const models::Model& model,
                                       const Mesh& mesh) {
  const int64_t n = mesh.num_devices();
  const int64_t bytes = model.config().hidden_size * 4 / n * (n - 1);
  const auto groups = mesh.Groups({"data"});
  for (const char* kind : {"reduce-scatter", "all-gather"}) {
    CensusAmount& amount = tally.at({kind, groups, 1});
    --amount.count;
    amount.bytes -= bytes;
    CensusAmount& sums = tally[{"all-reduce", groups, 1}];
    ++sums.count;
    sums.bytes += 2 * bytes;
  }
  return tally;
}

// At the highest precision: at the default one float32 that goes into a product travels as
// bfloat16.
inline void ExpectTpuCensus(const TpuCensusCase& c) {
  const auto topology = TpuTopology();
  ASSERT_TRUE(topology.ok()) << topology.status();
  if (!*topology) GTEST_SKIP() << "the libtpu wheel is not unpacked";
  const auto model = TinyTpuModel(c.model);
  Layout layout = c.layout;
  layout.matmul_precision = "highest";
  const EngineOptions options = LayoutOptions(layout);
  for (const char* kernel : c.kernels) {
    SCOPED_TRACE(kernel);
    auto program = BuildKernel(kernel, *model, options);
    ASSERT_TRUE(program.ok()) << program.status();
    CensusTally ours = TallyOf(program->census, program->mesh);
    if (layout.zero1 && std::string(kernel) == "update") {
      ours = SmallOnesAllReduced(std::move(ours), *model, program->mesh);
    }
    EXPECT_EQ(ToString(TallyOf(CollectivesOf(TpuHlo(**topology, *program)))), ToString(ours));
  }
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TPU_CENSUS_FOR_TEST_H_
