// Plans of a tiny model.
#ifndef MESHWRIGHT_PLAN_STEP_PLAN_FOR_TEST_H_
#define MESHWRIGHT_PLAN_STEP_PLAN_FOR_TEST_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/plan/compiler_for_test.h"
#include "meshwright/plan/step_plan.h"
#include "meshwright/plan/target.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/step_params.h"

namespace mw::plan {

class StepPlanTest : public CompilerTest {
 protected:
  StepPlanTest() {
    auto model = train::OpenModel("random:tiny-qwen3");
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  absl::StatusOr<StepPlan> Plan(const std::string& topology, std::vector<std::string> settings,
                                const PlanOptions& options = {}, double hbm_gib = 0) {
    for (const char* setting : {"batch_size=4", "max_target_length=32"}) {
      settings.insert(settings.begin(), setting);
    }
    auto config = train::LoadConfig("", settings);
    if (!config.ok()) return config.status();
    auto target = FindTarget(topology, compiler_, hbm_gib);
    if (!target.ok()) return target.status();
    auto mesh = config->mesh.Resolve(target->num_devices);
    if (!mesh.ok()) return mesh.status();
    config->engine.mesh = *std::move(mesh);
    engine_ = config->engine;
    config_ = *config;
    return PlanStep(*model_.model, *config, *target, compiler_, options);
  }

  // Of whole float32 tensors, trained ones only or all.
  int64_t WeightBytes(bool trained) const {
    const auto params = *train::StepParams::Create(*model_.model, engine_);
    int64_t bytes = 0;
    for (const nn::ParamSpec& spec : trained ? params.Trained() : params.all) {
      bytes += 4 * NumElements(spec.dims);
    }
    return bytes;
  }

  train::OpenedModel model_;
  train::EngineOptions engine_;
  train::TrainConfig config_;
};

}  // namespace mw::plan

#endif  // MESHWRIGHT_PLAN_STEP_PLAN_FOR_TEST_H_
