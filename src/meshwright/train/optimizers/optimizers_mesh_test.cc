// Optimizers whose slots have other dims than their parameters, in the engine on virtual
// devices: one device's numbers, and state that moves between meshes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/io/file_util.h"
#include "meshwright/train/checkpoint.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

class OptimizersMeshTest : public ::testing::TestWithParam<const char*> {
 protected:
  static EngineOptions Options(const std::string& mesh, bool zero1 = false) {
    EngineOptions options = TestOptions();
    options.optimizer.opt_type = GetParam();
    options.optimizer.adafactor_min_dim_size_to_factor = 16;
    MeshSettings settings;
    settings.mesh = mesh;
    settings.shard_optimizer_over_data = zero1;
    auto resolved = settings.Resolve(0);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    options.mesh = *resolved;
    options.mesh.check_replicas = true;
    return options;
  }

  absl::StatusOr<std::unique_ptr<Engine>> Make(const EngineOptions& options) const {
    auto client = TestMeshClient();
    EXPECT_TRUE(client.ok()) << client.status();
    return Engine::Create(*client, SharedTestCache(), model_.get(), RandomParams(*model_, options),
                          options);
  }

  static void Steps(Engine& engine, int begin, int end) {
    const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3, 1, 1, 8, 0, 4, 6, 2, 8};
    for (int step = begin; step < end; ++step) {
      Ok(engine.FwdBwd(Rows(counts, 4 * (step % 4), 4 * (step % 4) + 4)));
      Ok(engine.Update());
      EXPECT_EQ(Last(engine).skip_reason, SkipReason::kNone);
    }
  }

  std::unique_ptr<models::Model> model_ = *models::CreateModel(MeshConfig("llama"));
};

TEST_P(OptimizersMeshTest, GivesTheNumbersOfOneDevice) {
  const auto single = Make(Options(""));
  ASSERT_TRUE(single.ok()) << single.status();
  const auto start = *(*single)->Params();
  Steps(**single, 0, 2);
  const auto expected = *(*single)->Params();
  for (const char* mesh : {"data=2", "fsdp=2", "tensor=2"}) {
    const auto engine = Make(Options(mesh));
    ASSERT_TRUE(engine.ok()) << engine.status();
    Steps(**engine, 0, 2);
    const auto actual = *(*engine)->Params();
    for (size_t i = 0; i < expected.size(); ++i) {
      // Of what training changed. An orthogonalized update lets no singular value be small,
      // whatever rounding it is made of.
      const double change = RelativeL2(expected[i], start[i]);
      EXPECT_GT(change, 1e-4) << i;
      EXPECT_LE(RelativeL2(actual[i], expected[i]), 1e-3 * change) << mesh << " " << i;
    }
  }
}

TEST_P(OptimizersMeshTest, ACheckpointMovesBetweenMeshesBitForBit) {
  const TestDir dir;
  const std::string run = dir.File("run");
  std::vector<HostTensor> params;
  const auto straight = Make(Options("data=2"));
  ASSERT_TRUE(straight.ok()) << straight.status();
  Steps(**straight, 0, 1);
  {
    CheckpointState state;
    state.engine = *(*straight)->State();
    params = *(*straight)->Params();
    bool other_dims = false;
    for (const auto& [name, tensor] : state.engine.tensors) {
      other_dims = other_dims || name == "v_row.layers.mlp.up_proj.weight";
    }
    EXPECT_EQ(other_dims, std::string(GetParam()) == "adafactor");
    const auto saved = SaveCheckpoint(run, std::move(state), [](const std::string& folder) {
      return io::WriteFile(folder + "/config.json", "{}");
    });
    ASSERT_TRUE(saved.ok()) << saved.status();
  }
  const auto loaded = LoadCheckpoint(run + "/checkpoints/latest");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (const char* mesh : {"fsdp=2", "data=2"}) {
    const auto other = Make(Options(mesh));
    ASSERT_TRUE(other.ok()) << other.status();
    Ok((*other)->Restore(params, loaded->engine));
    EXPECT_TRUE(SameBits(*(*other)->Params(), params)) << mesh;
    const EngineState state = *(*other)->State();
    ASSERT_EQ(state.tensors.size(), loaded->engine.tensors.size());
    for (const auto& [name, tensor] : loaded->engine.tensors) {
      EXPECT_TRUE(SameBits({state.tensors.at(name)}, {tensor})) << mesh << " " << name;
    }
    if (std::string(mesh) != "data=2") continue;
    // On its own mesh it goes on as if nothing had been.
    Steps(**straight, 1, 2);
    Steps(**other, 1, 2);
    EXPECT_TRUE(SameBits(*(*other)->Params(), *(*straight)->Params()));
  }
}

TEST_P(OptimizersMeshTest, Zero1NeedsStateOfAMatrixsDims) {
  const absl::Status status = Make(Options("data=2", /*zero1=*/true)).status();
  if (std::string(GetParam()) == "muon") {
    EXPECT_TRUE(status.ok()) << status;
  } else {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("this optimizer has none of a matrix's own dims; use"));
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizersMeshTest, ::testing::Values("adafactor", "muon"));

}  // namespace
}  // namespace mw::train
