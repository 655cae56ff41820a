// Ten steps of Muon against torch's and optax's (tests/oracle/matrix_optimizers.py).
#include "meshwright/train/optimizers/muon.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "meshwright/train/optimizer_run_for_test.h"

namespace mw::train {
namespace {

// Five iterations multiply what is smallest in a matrix by 3.4445^5 = 485, and its rounding
// of 6e-8 with it; a step is 1e-2 of that and some are added up.
constexpr double kTolerance = 5e-6;

OptimizerOptions Options() {
  OptimizerOptions options;
  options.opt_type = "muon";
  return options;
}

class MuonTest : public ::testing::Test {
 protected:
  double Worst(const std::string& oracle, const OptimizerOptions& options, bool check = false) {
    double worst = 0;
    for (const char* name : {"wide", "tall", "wide_stack"}) {
      const bool stacked = std::string(name).ends_with("_stack");
      const OptimizerOracle::Errors errors = oracle_.Run(oracle, options, name, true, stacked);
      RecordProperty(oracle + "_" + name, fmt::format("{:.1e}", errors.param));
      if (check) {
        EXPECT_LE(errors.param, kTolerance) << oracle << " " << name;
        // Terms cancel to a thousandth where the signs of gradients alternate.
        ExpectSlots(errors, 2e-4, fmt::format("{} {}", oracle, name));
      }
      worst = std::max(worst, errors.param);
    }
    return worst;
  }

  OptimizerOracle oracle_{"matrix_optimizers.safetensors"};
};

TEST_F(MuonTest, EqualsTorch) {
  Worst("muon", Options(), true);
  OptimizerOptions options = Options();
  options.muon_scale = "keller";
  options.muon_nesterov = false;
  options.muon_momentum = 0.9;
  Worst("muon_keller", options, true);
}

TEST_F(MuonTest, EqualsOptaxWithoutNesterov) {
  OptimizerOptions options = Options();
  options.muon_nesterov = false;
  Worst("muon_optax", options, true);
}

TEST_F(MuonTest, EachWrongSettingIsFarBeyondTheTolerance) {
  for (int i = 0; i < 4; ++i) {
    OptimizerOptions options = Options();
    if (i == 0) options.muon_momentum = 0.9;
    if (i == 1) options.muon_nesterov = false;
    if (i == 2) options.muon_scale = "keller";
    if (i == 3) options.adam_weight_decay = 0;
    EXPECT_GT(Worst("muon", options), 1e-3) << i;
  }
}

// bf16 has eight bits; the iterations forgive what they start from, not what they end with.
TEST_F(MuonTest, Bfloat16IterationsAreNear) {
  OptimizerOptions options = Options();
  options.muon_dtype = DType::kBF16;
  const double error = Worst("muon", options);
  EXPECT_GT(error, 1e-4);
  EXPECT_LT(error, 2e-2);
}

TEST_F(MuonTest, EmbeddingsAndVectorsAreAdamWs) {
  nn::ParamSpec embedding = SpecOf("embed_tokens.weight", {6, 5}, true);
  EXPECT_TRUE(IsHiddenMatrix(embedding));
  embedding.axes = {"vocab", "embed"};
  EXPECT_FALSE(IsHiddenMatrix(embedding));
  EXPECT_FALSE(IsHiddenMatrix(SpecOf("norm", {7}, false)));
  EXPECT_FALSE(IsHiddenMatrix(SpecOf("norms", {3, 7}, false, true)));
  EXPECT_TRUE(IsHiddenMatrix(SpecOf("q", {3, 7, 5}, true, true)));

  const OptimizerOracle adamw("optimizers.safetensors");
  EXPECT_LE(adamw.Run("adamw", Options(), "matrix", embedding).param, 1e-6);
  EXPECT_LE(adamw.Run("adamw", Options(), "norm", false).param, 1e-6);
}

}  // namespace
}  // namespace mw::train
