#ifndef MESHWRIGHT_TRAIN_MESH_ENGINE_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_MESH_ENGINE_FOR_TEST_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/train/engine.h"
#include "meshwright/train/test_cache.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {

// An engine of random weights on virtual CPU devices. `model` must outlive it.
inline std::unique_ptr<Engine> MakeMeshEngine(const models::Model& model,
                                              const EngineOptions& options) {
  auto client = TestMeshClient();
  EXPECT_TRUE(client.ok()) << client.status();
  auto engine =
      Engine::Create(*client, SharedTestCache(), &model, RandomParams(model, options), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return std::move(*engine);
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_MESH_ENGINE_FOR_TEST_H_
