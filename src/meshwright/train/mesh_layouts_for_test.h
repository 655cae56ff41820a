// Layouts of tiny models over meshes and the programs of their steps, for the tests that
// hold a census against a compiler's text.
#ifndef MESHWRIGHT_TRAIN_MESH_LAYOUTS_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_MESH_LAYOUTS_FOR_TEST_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "meshwright/graph_testing/census_tally.h"
#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/step_programs.h"

namespace mw::train {

struct Layout {
  const char* mesh;
  const char* rules = "default";
  const char* gather = "layer";
  const char* reduce = "";
  bool zero1 = false;
  bool scan_layers = true;
  DType compute = DType::kF32;
  const char* matmul_precision = "default";
};

inline std::string LayoutName(const Layout& layout) {
  std::string name =
      fmt::format("{}_{}{}{}{}", layout.mesh, layout.rules,
                  std::string(layout.gather) == "layer" ? "" : "_gathered_once",
                  layout.zero1 ? "_zero1" : "", layout.scan_layers ? "" : "_unscanned");
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

inline EngineOptions LayoutOptions(const Layout& layout) {
  EngineOptions options;
  MeshSettings settings;
  settings.mesh = layout.mesh;
  settings.custom_mesh_and_rule = layout.rules;
  settings.gather_parameters = layout.gather;
  settings.reduce_gradients = layout.reduce;
  settings.shard_optimizer_over_data = layout.zero1;
  auto mesh = settings.Resolve(0);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  options.mesh = *mesh;
  options.model.compute_dtype = layout.compute;
  options.model.scan_layers = layout.scan_layers;
  options.model.matmul_precision = layout.matmul_precision;
  options.loss.head_chunk_tokens = 6;  // on each device
  return options;
}

// The preset "tiny-llama" or "tiny-qwen3" after `change`; its vocabulary does not split.
inline std::unique_ptr<models::Model> TinyModel(
    const std::string& preset, const std::function<void(models::ModelConfig&)>& change) {
  auto config = models::LoadPreset(preset);
  EXPECT_TRUE(config.ok()) << config.status();
  change(*config);
  auto model = models::CreateModel(*config);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

inline absl::StatusOr<compile::Program> BuildKernel(const std::string& kernel,
                                                    const models::Model& model,
                                                    const EngineOptions& options) {
  const BatchShape shape{8, 16};
  if (kernel == "first") return BuildFirstKernel(model, options, shape);
  if (kernel == "accum") return BuildAccumKernel(model, options, shape);
  if (kernel == "eval") return BuildEvalKernel(model, options, shape);
  return BuildUpdateKernel(model, options);
}

// A folder for a compiler's dump, gone with the object.
class DumpFolder {
 public:
  DumpFolder() {
    path_ = (std::filesystem::temp_directory_path() / "mw_census_XXXXXX").string();
    MW_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~DumpFolder() { std::filesystem::remove_all(path_); }
  DumpFolder(const DumpFolder&) = delete;
  DumpFolder& operator=(const DumpFolder&) = delete;

  const std::string& path() const { return path_; }

  // The text of the compiled program; empty when there is none.
  std::string OptimizedHlo() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (!entry.path().string().ends_with("after_optimizations.txt")) continue;
      std::ostringstream stream;
      stream << std::ifstream(entry.path()).rdbuf();
      return stream.str();
    }
    return "";
  }

 private:
  std::string path_;
};

inline std::vector<hlo::Collective> CollectivesOf(const absl::StatusOr<std::string>& hlo) {
  EXPECT_TRUE(hlo.ok()) << hlo.status();
  if (!hlo.ok()) return {};
  auto collectives = hlo::ParseCollectives(*hlo);
  EXPECT_TRUE(collectives.ok()) << collectives.status();
  return collectives.ok() ? *std::move(collectives) : std::vector<hlo::Collective>();
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MESH_LAYOUTS_FOR_TEST_H_
