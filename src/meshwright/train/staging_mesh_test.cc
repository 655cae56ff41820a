// Micro-batches that are on the devices before they are trained on, over meshes.
#include <gtest/gtest.h>

#include <string>

#include "meshwright/train/mesh_engine_for_test.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/staging_for_test.h"

namespace mw::train {
namespace {

struct Layout {
  const char* mesh;
  const char* gather_parameters = "layer";
  const char* reduce_gradients = "";
};

class StagingMeshTest : public ::testing::TestWithParam<Layout> {
 protected:
  std::unique_ptr<Engine> Make() {
    EngineOptions options = TestOptions();
    MeshSettings settings;
    settings.mesh = GetParam().mesh;
    settings.gather_parameters = GetParam().gather_parameters;
    settings.reduce_gradients = GetParam().reduce_gradients;
    settings.check_replicas = true;
    options.mesh = *settings.Resolve(0);
    return MakeMeshEngine(*model_, options);
  }

  std::unique_ptr<models::Model> model_ = *models::CreateModel(MeshConfig("llama"));
};

TEST_P(StagingMeshTest, EveryOrderGivesTheSameBits) {
  const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3, 1, 1, 8, 0, 4, 6, 2, 8};
  const std::vector<std::vector<data::Batch>> steps = {{Rows(counts, 0, 8), Rows(counts, 8, 16)},
                                                       {Rows(counts, 4, 12), Rows(counts, 0, 8)}};
  const StagedRun expected = TrainStaged(*Make(), steps, StagingOrder::kPlain, false);
  for (const StagingOrder order : kStagingOrders) {
    SCOPED_TRACE(static_cast<int>(order));
    ExpectSameRun(TrainStaged(*Make(), steps, order, /*waits=*/false), expected);
  }
}

// A batch dim over two axes, and over one beside another; weights gathered once an update and
// gradients reduced once.
INSTANTIATE_TEST_SUITE_P(Layouts, StagingMeshTest,
                         ::testing::Values(Layout{.mesh = "data=2,fsdp=2"},
                                           Layout{.mesh = "data=2,tensor=2"},
                                           Layout{.mesh = "fsdp=4",
                                                  .gather_parameters = "update",
                                                  .reduce_gradients = "fsdp=update"}));

}  // namespace
}  // namespace mw::train
