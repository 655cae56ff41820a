// Ten steps of Adafactor against optax's (tests/oracle/matrix_optimizers.py).
#include "meshwright/train/optimizers/adafactor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meshwright/train/optimizer_run_for_test.h"
#include "meshwright/train/optimizers/blocks.h"

namespace mw::train {
namespace {

using ::testing::ElementsAre;

OptimizerOptions Options() {
  OptimizerOptions options;
  options.opt_type = "adafactor";
  options.adafactor_min_dim_size_to_factor = 4;
  return options;
}

class AdafactorTest : public ::testing::Test {
 protected:
  // Of the parameters that differ in shape, the worst error.
  double Worst(const std::string& oracle, const OptimizerOptions& options, bool check) {
    double worst = 0;
    for (const char* name : {"wide", "tall", "vector", "wide_stack", "vector_stack"}) {
      const bool stacked = std::string(name).ends_with("_stack");
      const OptimizerOracle::Errors errors = oracle_.Run(oracle, options, name, true, stacked);
      RecordProperty(oracle + "_" + name, fmt::format("{:.1e}", errors.param));
      if (check) {
        EXPECT_LE(errors.param, 1e-6) << oracle << " " << name;
        // The momentum's terms cancel where the signs of gradients alternate.
        ExpectSlots(errors, 5 * kSlotTolerance, fmt::format("{} {}", oracle, name));
      }
      worst = std::max(worst, errors.param);
    }
    return worst;
  }

  OptimizerOracle oracle_{"matrix_optimizers.safetensors"};
};

TEST_F(AdafactorTest, EqualsOptax) { Worst("adafactor", Options(), true); }

TEST_F(AdafactorTest, BelowTheThresholdNothingIsFactored) {
  OptimizerOptions options = Options();
  options.adafactor_min_dim_size_to_factor = 128;
  Worst("adafactor_whole", options, true);
}

TEST_F(AdafactorTest, OtherSettingsEqualOptax) {
  OptimizerOptions options = Options();
  options.adafactor_decay_rate = 0.6;
  options.adafactor_clipping_threshold = 0;
  options.adafactor_multiply_by_parameter_scale = false;
  options.adafactor_momentum = 0.9;
  options.adafactor_weight_decay_rate = 0.01;
  options.adafactor_eps = 1e-20;
  Worst("adafactor_plain", options, true);
  options = Options();
  options.adafactor_clipping_threshold = 0.25;
  Worst("adafactor_clipped", options, true);
}

TEST_F(AdafactorTest, EachWrongSettingIsFarBeyondTheTolerance) {
  for (int i = 0; i < 6; ++i) {
    OptimizerOptions options = Options();
    if (i == 0) options.adafactor_decay_rate = 0.7;
    if (i == 1) options.adafactor_clipping_threshold = 0;
    if (i == 2) options.adafactor_multiply_by_parameter_scale = false;
    if (i == 3) options.adafactor_weight_decay_rate = 1e-3;
    if (i == 4) options.adafactor_eps = 1e-6;
    // What a stack's layers have in common would be, were they not each a block.
    if (i == 5) {
      const OptimizerOracle::Errors errors =
          oracle_.Run("adafactor", options, "vector_stack", true, false);
      EXPECT_GT(errors.param, 1e-4);
      continue;
    }
    EXPECT_GT(Worst("adafactor", options, false), 1e-4) << i;
  }
}

TEST_F(AdafactorTest, SlotsFollowTheirParametersDims) {
  const auto optimizer = CreateAdafactor(Options());
  const auto slots = optimizer->Slots(SpecOf("w", {3, 5, 8}, true, true));
  ASSERT_EQ(slots.size(), 2U);
  EXPECT_THAT(slots[0].dims, ElementsAre(3, 5));
  EXPECT_THAT(slots[1].dims, ElementsAre(3, 8));
  PartitionSpec placement;
  placement.dims = {{"data"}, {"tensor"}, {"fsdp"}};
  EXPECT_EQ(SlotPlacement(slots[0], placement).ToString(), "{[data],[tensor]}");
  EXPECT_EQ(SlotPlacement(slots[1], placement).ToString(), "{[data],[fsdp]}");
  // The smaller dim decides; a stack's size does not.
  EXPECT_EQ(optimizer->Slots(SpecOf("w", {8, 3, 9}, true, true))[0].name, "v");
  EXPECT_EQ(optimizer->Slots(SpecOf("w", {8, 9}, true, true))[0].name, "v");
  OptimizerOptions options = Options();
  options.adafactor_momentum = 0.9;
  EXPECT_EQ(CreateAdafactor(options)->Slots(SpecOf("w", {4, 4}, true)).back().name, "momentum");
}

TEST_F(AdafactorTest, MomentsThatAreFactoredAreNoneOfAMatrix) {
  const std::vector<nn::ParamSpec> params = {SpecOf("w", {5, 8}, true),
                                             SpecOf("n", {3, 8}, false, true)};
  OptimizerOptions options = Options();
  EXPECT_FALSE(KeepsMatrices(*CreateAdafactor(options), params));
  options.adafactor_momentum = 0.9;
  EXPECT_TRUE(KeepsMatrices(*CreateAdafactor(options), params));
  options = Options();
  options.adafactor_min_dim_size_to_factor = 6;
  EXPECT_TRUE(KeepsMatrices(*CreateAdafactor(options), params));
}

// A row that is never touched has the least mean square that there is, beside large ones.
TEST_F(AdafactorTest, AnUntouchedRowBesideALargeGradientStaysFinite) {
  const auto optimizer = CreateAdafactor(Options());
  graph::Graph g;
  BuildOptimizerGraph(g, *optimizer, SpecOf("w", {4, 4}, true), DType::kF32);
  HostTensor grad = HostTensor::Zeros(DType::kF32, {4, 4});
  grad.mutable_as<float>()[0] = 1e10F;
  const HostTensor zeros = HostTensor::Zeros(DType::kF32, {4, 4});
  const HostTensor slot = HostTensor::Zeros(DType::kF32, {4});
  const auto out =
      RunGraph(g, {zeros, grad, HostTensor::From<float>(DType::kF32, {}, std::vector<float>{1}),
                   HostTensor::Zeros(DType::kS32, {}), slot, slot});
  ASSERT_TRUE(out.ok()) << out.status();
  for (int i = 0; i < 16; ++i) {
    // An update of 1, times the scale of a parameter of zeros.
    EXPECT_FLOAT_EQ((*out)[0].as<float>()[i], i == 0 ? -1e-3F : 0.0F) << i;
  }
}

}  // namespace
}  // namespace mw::train
