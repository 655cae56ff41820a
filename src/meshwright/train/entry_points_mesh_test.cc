// FwdBwdBatched and TrainStep against FwdBwd and Update, on virtual devices.
#include <gtest/gtest.h>

#include "meshwright/spmd/census.h"
#include "meshwright/train/mesh_engine_for_test.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

struct Layout {
  const char* name;
  const char* mesh;
  const char* gather_parameters = "layer";
  const char* reduce_gradients = "";
  bool shard_optimizer_over_data = false;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class EntryPointsMeshTest : public ::testing::TestWithParam<Layout> {
 protected:
  std::unique_ptr<Engine> Make() {
    EngineOptions options = TestOptions();
    options.optimizer.opt_type = "sgd";
    options.optimizer.sgd_momentum = 0.5;
    options.schedule.learning_rate = 1;
    options.gradient_clipping_threshold = 1;
    MeshSettings settings;
    settings.mesh = GetParam().mesh;
    settings.gather_parameters = GetParam().gather_parameters;
    settings.reduce_gradients = GetParam().reduce_gradients;
    settings.shard_optimizer_over_data = GetParam().shard_optimizer_over_data;
    settings.check_replicas = true;
    options.mesh = *settings.Resolve(0);
    return MakeMeshEngine(*model_, options);
  }

  // Three ragged micro-batches of eight rows.
  static std::vector<data::Batch> Batches() {
    const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3, 1, 1, 8, 0, 4, 6, 2, 8};
    return {Rows(counts, 0, 8), Rows(counts, 8, 16), Rows(counts, 4, 12)};
  }

  static const compile::Program& ProgramOf(const Engine& engine, const std::string& name) {
    for (const auto& [key, program] : engine.programs()) {
      if (key.starts_with(name)) return *program;
    }
    throw std::runtime_error("there is no " + name);
  }

  std::unique_ptr<models::Model> model_ = *models::CreateModel(MeshConfig("llama"));
};

TEST_P(EntryPointsMeshTest, AccumulateAndUpdateAlike) {
  const auto single = Make();
  const auto batched = Make();
  const std::vector<data::Batch> batches = Batches();
  for (const data::Batch& batch : batches) Ok(single->FwdBwd(batch));
  Ok(batched->FwdBwdBatched(batches));
  const GradientReadout expected = *single->ReadGradients();
  const GradientReadout actual = *batched->ReadGradients();
  EXPECT_EQ(actual.loss.denominator(), expected.loss.denominator());
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_LE(RelativeL2(actual.gradients[i], expected.gradients[i]), 1e-6)
        << single->params()[i].name;
  }
  // Nothing is moved that single calls do not move, and nothing more often.
  const spmd::Census& loop = ProgramOf(*batched, "batched_kernel").census;
  const int64_t calls = spmd::CountCollectives(ProgramOf(*single, "first_kernel").census, "") +
                        2 * spmd::CountCollectives(ProgramOf(*single, "accum_kernel").census, "");
  EXPECT_LE(spmd::CountCollectives(loop, ""), calls);
  EXPECT_EQ(spmd::CountCollectives(loop, "", "data"), 0);

  Ok(single->Update());
  Ok(batched->Update());
  const double norm = Last(*single).grad_norm;
  EXPECT_NEAR(Last(*batched).grad_norm, norm, 1e-6 * norm);
  // A step of one micro-batch follows.
  Ok(single->FwdBwd(batches[1]));
  Ok(single->Update());
  Ok(batched->TrainStep(batches[1]));
  const StepMetrics a = Last(*batched), b = Last(*single);
  EXPECT_NEAR(a.Loss(), b.Loss(), 1e-6 * b.Loss());
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 2e-6 * b.grad_norm);
  EXPECT_LE(MaxDifference(*batched->Params(), *single->Params()), 2e-6);
  EXPECT_LE(spmd::CountCollectives(ProgramOf(*batched, "train_step_kernel").census, ""),
            spmd::CountCollectives(ProgramOf(*single, "first_kernel").census, "") +
                spmd::CountCollectives(ProgramOf(*single, "update_kernel").census, ""));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, EntryPointsMeshTest,
    ::testing::Values(Layout{"zero1", "data=4", "layer", "", /*shard_optimizer_over_data=*/true},
                      Layout{"fsdp_tensor", "fsdp=2,tensor=2"},
                      Layout{"once_an_update", "fsdp=4", "update", "fsdp=update"},
                      Layout{"hybrid", "data=2,fsdp=2", "micro_batch", "fsdp=update"},
                      Layout{"late", "data=2,fsdp=2", "layer", "fsdp=layer"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mw::train
