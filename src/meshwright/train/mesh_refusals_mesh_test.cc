// Settings of a mesh that cannot be applied: each stops the run with one sentence that says
// what would work, before weights are read and before anything is compiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/sft.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

struct Request {
  MeshSettings settings;
  int64_t num_devices = 0;  // of the client; 0: as many as the mesh wants
  int64_t vocab_size = 64;
  int64_t num_heads = 8;
  int64_t num_kv_heads = 4;
  int rows = 8;
  std::string opt_type = "adamw";
};

Request Of(const std::string& mesh) {
  Request request;
  request.settings.mesh = mesh;
  return request;
}

// The error of starting such a run as commands do.
std::string Refusal(const Request& request) {
  EngineOptions options = TestOptions();
  options.optimizer.opt_type = request.opt_type;
  const auto mesh = request.settings.Resolve(request.num_devices);
  if (!mesh.ok()) return std::string(mesh.status().message());
  options.mesh = *mesh;
  models::ModelConfig config = TinyConfig();
  config.vocab_size = request.vocab_size;
  config.num_heads = request.num_heads;
  config.num_kv_heads = request.num_kv_heads;
  const std::unique_ptr<models::Model> model = *models::CreateModel(config);
  const auto client = TestMeshClient();
  EXPECT_TRUE(client.ok()) << client.status();
  const TestDir dir;
  const std::string programs = dir.File("executables");
  const auto cache = OpenCacheForTest(programs);
  bool loaded = false;
  const auto load = [&]() -> absl::StatusOr<std::vector<HostTensor>> {
    loaded = true;
    return RandomParams(*model, options);
  };
  const std::vector<int> counts(static_cast<size_t>(request.rows), 8);
  const auto engine = Engine::CreateCompiled(*client, cache.get(), model.get(), load, options,
                                             Rows(counts, 0, request.rows));
  if (engine.ok()) return "accepted";
  EXPECT_FALSE(loaded) << "weights were read first";
  EXPECT_TRUE(std::filesystem::is_empty(programs)) << "something was compiled";
  return std::string(engine.status().message());
}

TEST(MeshRefusalsTest, WhatFitsIsCompiled) {
  Request request = Of("data=2");
  request.settings.shard_optimizer_over_data = true;
  EXPECT_EQ(Refusal(request), "accepted");
}

TEST(MeshRefusalsTest, TensorThatDoesNotDivideHeads) {
  Request request = Of("tensor=8");
  EXPECT_EQ(Refusal(request),
            "the model has num_kv_heads = 4, which tensor = 8 does not divide; use a size that "
            "divides it, or sharding_fallback=replicate to give every device all of these heads");
  request = Of("tensor=4");
  request.num_heads = request.num_kv_heads = 6;
  EXPECT_EQ(Refusal(request),
            "the model has num_kv_heads = 6, which tensor = 4 does not divide; use a size that "
            "divides it, or sharding_fallback=replicate to give every device all of these heads");
}

TEST(MeshRefusalsTest, TensorThatDoesNotDivideTheVocabulary) {
  Request request = Of("tensor=2");
  request.vocab_size = 61;
  EXPECT_EQ(Refusal(request),
            "parameter embed_tokens.weight [61,16]: dim 0 (vocab) of size 61 is not a multiple of "
            "2 (tensor); use axis sizes that divide it, or sharding_fallback=replicate to keep the "
            "dim whole");
}

TEST(MeshRefusalsTest, Zero1) {
  Request request = Of("data=2,fsdp=2");
  request.settings.shard_optimizer_over_data = true;
  EXPECT_EQ(Refusal(request),
            "shard_optimizer_over_data cannot be used with fsdp=2, which shards weights and "
            "optimizer state already; leave it off");
  for (const char* mesh : {"data=1,tensor=2", "tensor=2"}) {
    request.settings.mesh = mesh;
    EXPECT_EQ(Refusal(request),
              "shard_optimizer_over_data needs a data axis greater than 1, but the mesh is \"" +
                  std::string(mesh) + "\"; use mesh data=N, or leave it off");
  }
  request.settings.mesh = "data=2";
  request.opt_type = "sgd";
  EXPECT_EQ(Refusal(request),
            "shard_optimizer_over_data shards the optimizer's moments, and this optimizer has none "
            "of a matrix's own dims; use opt_type=adamw or muon, a sgd_momentum or "
            "adafactor_momentum above 0, or leave it off");
}

// `eval` with the settings of a run.
TEST(MeshRefusalsTest, Zero1IsNothingToAnEngineOfWeightsOnly) {
  const auto model = OpenModel("random:tiny-llama:1");
  ASSERT_TRUE(model.ok()) << model.status();
  TrainConfig config;
  config.mesh.mesh = "data=2";
  config.mesh.shard_optimizer_over_data = true;
  const auto mesh = config.mesh.Resolve(2);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  config.engine.mesh = *mesh;
  const auto client = TestMeshClient();
  ASSERT_TRUE(client.ok()) << client.status();
  const auto engine = MakeEngine(*client, SharedTestCache(), *model, config, /*weights_only=*/true);
  EXPECT_TRUE(engine.ok()) << engine.status();
}

TEST(MeshRefusalsTest, ABatchThatDoesNotSplit) {
  Request request = Of("data=2,fsdp=2");
  request.rows = 6;
  EXPECT_EQ(Refusal(request),
            "a micro-batch has 6 rows, which do not split evenly over data=2 x fsdp=2 (4 parts); "
            "make batch_size a multiple of it");
}

TEST(MeshRefusalsTest, ARuleThatNamesAnUnknownAxis) {
  const TestDir dir;
  const std::string file = dir.File("mine.yaml");
  std::ofstream(file) << "logical_axis_rules:\n  - [activation_batch, [data]]\n  - [mlp, tensro]\n";
  Request request = Of("data=2");
  request.settings.custom_mesh_and_rule = file;
  EXPECT_EQ(Refusal(request), file +
                                  ":3: rule mlp names the unknown mesh axis \"tensro\"; the "
                                  "nearest is \"tensor\"; there are data, stage, fsdp, "
                                  "fsdp_transpose, context, tensor, expert");
}

TEST(MeshRefusalsTest, EmbedGradWithoutAMesh) {
  const TestDir dir;
  const std::string file = dir.File("mine.yaml");
  std::ofstream(file) << "logical_axis_rules:\n  - [embed_grad, [data]]\n";
  Request request = Of("");
  request.settings.custom_mesh_and_rule = file;
  EXPECT_EQ(Refusal(request),
            "the rules " + file +
                " map embed_grad, which says how gradients are reduced over a mesh, and there is "
                "none; give one, e.g. --mesh data=2, or use other rules");
}

TEST(MeshRefusalsTest, AMeshOfAnotherNumberOfDevices) {
  Request request = Of("data=2,tensor=2");
  request.num_devices = 8;
  EXPECT_EQ(Refusal(request),
            "mesh data=2,tensor=2 has 4 devices but there are 8; choose sizes whose product is 8");
}

TEST(MeshRefusalsTest, WhatOnlyExplicitCollectivesCanDo) {
  Request request = Of("data=2");
  request.settings.shard_mode = "auto";
  request.settings.reduce_gradients = "data=update";
  EXPECT_EQ(Refusal(request),
            "reduce_gradients=data=update defers a reduction that shard_mode=auto leaves to the "
            "compiler in every micro-batch; use shard_mode=explicit, or leave it off");
  request.settings.reduce_gradients = "";
  request.settings.shard_optimizer_over_data = true;
  EXPECT_EQ(Refusal(request),
            "shard_optimizer_over_data needs reductions that shard_mode=auto leaves to the "
            "compiler; use shard_mode=explicit, or leave it off");
}

}  // namespace
}  // namespace mw::train
