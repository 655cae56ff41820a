// Losses of a user's own and frozen parameters on meshes: what one device gets.
#include <gtest/gtest.h>

#include "meshwright/train/losses_for_test.h"
#include "meshwright/train/mesh_engine_for_test.h"
#include "meshwright/train/mesh_settings.h"

namespace mw::train {
namespace {

struct Layout {
  const char* name;
  const char* mesh;
  const char* gather_parameters = "layer";
  const char* reduce_gradients = "";
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

// RichLoss's probes have this size.
models::ModelConfig Config() {
  models::ModelConfig config = MeshConfig("llama");
  config.hidden_size = 16;
  return config;
}

class CustomLossMeshTest : public ::testing::TestWithParam<Layout> {
 protected:
  std::unique_ptr<Engine> Make(const models::Model& model, const std::shared_ptr<const Loss>& loss,
                               const char* mesh) {
    EngineOptions options = TestOptions();
    options.optimizer.opt_type = "sgd";
    options.optimizer.sgd_momentum = 0.5;
    options.schedule.learning_rate = 1;
    options.loss_fn = loss;
    if (mesh != nullptr) {
      MeshSettings settings;
      settings.mesh = mesh;
      settings.gather_parameters = GetParam().gather_parameters;
      settings.reduce_gradients = GetParam().reduce_gradients;
      settings.check_replicas = true;
      options.mesh = *settings.Resolve(0);
    }
    return MakeMeshEngine(model, options);
  }

  static std::vector<data::Batch> Batches() {
    const std::vector<int> counts = {8, 2, 5, 1, 0, 7, 8, 3, 1, 1, 8, 0};
    return {Enriched(Rows(counts, 0, 4), 16), Enriched(Rows(counts, 4, 8), 16),
            Enriched(Rows(counts, 8, 12), 16)};
  }

  static void ExpectAlike(const LossTotals& actual, const LossTotals& expected) {
    ASSERT_EQ(actual.totals.size(), expected.totals.size());
    for (size_t i = 0; i < expected.totals.size(); ++i) {
      const auto& [sum, denominator] = expected.totals[i];
      EXPECT_NEAR(actual.totals[i].sum, sum, 1e-5 * sum) << expected.specs[i].name;
      EXPECT_NEAR(actual.totals[i].denominator, denominator, 1e-6 * denominator)
          << expected.specs[i].name;
    }
  }

  void ExpectOneDevicesResults(const models::Model& model,
                               const std::shared_ptr<const Loss>& loss) {
    const auto one = Make(model, loss, nullptr);
    const auto mesh = Make(model, loss, GetParam().mesh);
    const std::vector<data::Batch> batches = Batches();
    for (Engine* engine : {one.get(), mesh.get()}) {
      for (const data::Batch& batch : batches) Ok(engine->FwdBwd(batch));
    }
    const GradientReadout expected = *one->ReadGradients(), actual = *mesh->ReadGradients();
    ExpectAlike(actual.loss, expected.loss);
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      EXPECT_LE(RelativeL2(actual.gradients[i], expected.gradients[i]), 1e-5)
          << one->trained_params()[i].name;
    }
    Ok(one->Update());
    Ok(mesh->Update());
    for (Engine* engine : {one.get(), mesh.get()}) {
      Ok(engine->FwdBwdBatched(batches));
      Ok(engine->Update());
      Ok(engine->TrainStep(batches[1]));
    }
    const auto a = *mesh->TakeMetrics(true), b = *one->TakeMetrics(true);
    ASSERT_EQ(a.size(), 3u);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i].Loss(), b[i].Loss(), 1e-4 * b[i].Loss()) << "step " << i + 1;
      EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, 1e-4 * b[i].grad_norm) << "step " << i + 1;
    }
    ExpectAlike(mesh->EvalStep(batches[2])->loss, one->EvalStep(batches[2])->loss);
    const EngineState mine = *mesh->State(), others = *one->State();
    ASSERT_EQ(mine.tensors.size(), others.tensors.size());
    if (!mine.tensors.contains("loss.num_micro_batches")) return;
    EXPECT_EQ(mine.tensors.at("loss.num_micro_batches").as<int32_t>()[0], 7);
    EXPECT_NEAR(mine.tensors.at("loss.largest").as<float>()[1],
                others.tensors.at("loss.largest").as<float>()[1], 1e-4);
  }
};

TEST_P(CustomLossMeshTest, EverythingThatALossMayHave) {
  const auto model = *models::CreateModel(Config());
  ExpectOneDevicesResults(*model, std::make_shared<RichLoss>());
}

TEST_P(CustomLossMeshTest, FrozenParameters) {
  const PartlyFrozenModel model(*models::CreateModel(Config()), "self_attn.");
  ExpectOneDevicesResults(model, nullptr);
}

// Sums over the batch's axes, rows that are cut, weights that are, and those that are gathered once
// an update.
INSTANTIATE_TEST_SUITE_P(Layouts, CustomLossMeshTest,
                         ::testing::Values(Layout{"data_context", "data=2,context=2"},
                                           Layout{"once_an_update", "fsdp=4", "update",
                                                  "fsdp=update"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mw::train
