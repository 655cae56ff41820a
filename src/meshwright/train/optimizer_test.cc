// Ten steps of each optimizer against torch's (tests/oracle/optimizers.py).
#include "meshwright/train/optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "meshwright/train/engine_options.h"
#include "meshwright/train/loss.h"
#include "meshwright/train/optimizer_run_for_test.h"

namespace mw::train {
namespace {

using graph::Graph;

class OptimizerTest : public ::testing::Test {
 protected:
  OptimizerOracle oracle_{"optimizers.safetensors"};
};

TEST_F(OptimizerTest, AdamWEqualsTorch) {
  const OptimizerOptions options;
  for (const bool matrix : {true, false}) {
    const std::string name = matrix ? "matrix" : "norm";
    const OptimizerOracle::Errors error = oracle_.Run("adamw", options, name, matrix);
    RecordProperty("adamw_" + name, fmt::format("{:.1e}", error.param));
    EXPECT_LE(error.param, 1e-6) << name;
    ExpectSlots(error, kSlotTolerance, name);
  }
}

TEST_F(OptimizerTest, AWrongSettingIsFarBeyondTheTolerance) {
  OptimizerOptions options;
  // The decay of what must not decay, and none of what must.
  EXPECT_GT(oracle_.Run("adamw", options, "norm", true).param, 1e-4);
  EXPECT_GT(oracle_.Run("adamw", options, "matrix", false).param, 1e-4);
  options.adam_b2 = 0.999;
  EXPECT_GT(oracle_.Run("adamw", options, "matrix", true).param, 1e-4);
}

TEST_F(OptimizerTest, SgdEqualsTorch) {
  for (const double momentum : {0.0, 0.9}) {
    OptimizerOptions options;
    options.opt_type = "sgd";
    options.sgd_momentum = momentum;
    for (const char* name : {"matrix", "norm"}) {
      const OptimizerOracle::Errors error =
          oracle_.Run(momentum == 0 ? "sgd" : "sgd_momentum", options, name, true);
      EXPECT_LE(error.param, 1e-6) << name << " " << momentum;
      ExpectSlots(error, kSlotTolerance, fmt::format("{} {}", name, momentum));
    }
  }
}

TEST_F(OptimizerTest, Bfloat16WeightsAreRoundedOnce) {
  auto optimizer = CreateOptimizer(OptimizerOptions{});
  ASSERT_TRUE(optimizer.ok());
  const HostTensor start = oracle_.Get("start/matrix").ConvertTo(DType::kBF16);
  const HostTensor grad = OptimizerOracle::AtStep(oracle_.Get("gradients/matrix"), 0);
  const HostTensor zero = HostTensor::Zeros(DType::kF32, start.dims());
  const auto update = [&](const HostTensor& param) {
    Graph g;
    BuildOptimizerGraph(g, **optimizer, SpecOf("matrix", start.dims(), true), param.dtype());
    auto out = RunGraph(
        g, {param, grad, HostTensor::From<float>(DType::kF32, {}, std::vector<float>{0.01f}),
            HostTensor::Zeros(DType::kS32, {}), zero, zero});
    EXPECT_TRUE(out.ok()) << out.status();
    return out->front();
  };
  const HostTensor rounded = update(start.ConvertTo(DType::kF32)).ConvertTo(DType::kBF16);
  const HostTensor direct = update(start);
  ASSERT_EQ(direct.dtype(), DType::kBF16);
  EXPECT_TRUE(std::equal(direct.bytes(), direct.bytes() + direct.num_bytes(), rounded.bytes()));
}

TEST(OptimizerOptionsTest, BadSettingsNameTheField) {
  const auto message = [](const std::function<void(OptimizerOptions&)>& change) {
    OptimizerOptions options;
    change(options);
    const auto created = CreateOptimizer(options);
    EXPECT_FALSE(created.ok());
    return std::string(created.status().message());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](auto& o) { o.opt_type = "adam"; }), HasSubstr("adamw"));
  EXPECT_THAT(message([](auto& o) { o.adam_b1 = 1; }), HasSubstr("adam_b1"));
  EXPECT_THAT(message([](auto& o) { o.adam_b2 = -0.1; }), HasSubstr("adam_b2"));
  EXPECT_THAT(message([](auto& o) { o.adam_eps = 0; }), HasSubstr("adam_eps"));
  EXPECT_THAT(message([](auto& o) { o.adam_weight_decay = NAN; }), HasSubstr("weight_decay"));
  EXPECT_THAT(message([](auto& o) { o.sgd_momentum = 2; }), HasSubstr("sgd_momentum"));
  EXPECT_THAT(message([](auto& o) { o.adafactor_decay_rate = 0; }), HasSubstr("decay_rate 0"));
  EXPECT_THAT(message([](auto& o) { o.adafactor_clipping_threshold = -1; }),
              HasSubstr("adafactor_clipping_threshold -1"));
  EXPECT_THAT(message([](auto& o) { o.adafactor_min_dim_size_to_factor = 0; }),
              HasSubstr("adafactor_min_dim_size_to_factor 0"));
  EXPECT_THAT(message([](auto& o) { o.adafactor_momentum = 1; }), HasSubstr("adafactor_momentum"));
  EXPECT_THAT(message([](auto& o) { o.adafactor_weight_decay_rate = NAN; }),
              HasSubstr("adafactor_weight_decay_rate"));
  EXPECT_THAT(message([](auto& o) { o.adafactor_eps = 0; }), HasSubstr("at least 1e-36"));
  EXPECT_THAT(message([](auto& o) { o.muon_momentum = -1; }), HasSubstr("muon_momentum -1"));
  EXPECT_THAT(message([](auto& o) { o.muon_scale = "moonlit"; }),
              HasSubstr("the nearest is \"moonlight\""));
  EXPECT_THAT(message([](auto& o) { o.muon_dtype = DType::kF16; }), HasSubstr("f32 or bf16"));
}

TEST(OptimizerOptionsTest, WhatFloat32FlushesOrCannotHoldIsRefused) {
  using ::testing::HasSubstr;
  const auto message = [](const OptimizerOptions& options) {
    return std::string(options.Validate().message());
  };
  EXPECT_THAT(message({.adam_eps = 1e-37}), HasSubstr("at least 1e-18"));
  EXPECT_THAT(message({.adam_eps = 1e39}), HasSubstr("adam_eps 1e+39"));
  EXPECT_THAT(message({.adam_weight_decay = 1e39}), HasSubstr("adam_weight_decay 1e+39"));
  EXPECT_THAT(message({.adam_weight_decay = 1e-60}), HasSubstr("adam_weight_decay 1e-60"));

  LossOptions loss;
  loss.z_loss = 1e39;
  EXPECT_THAT(std::string(loss.Validate().message()), HasSubstr("loss.z_loss 1e+39"));

  EngineOptions engine;
  engine.gradient_clipping_threshold = 1e-60;
  EXPECT_THAT(std::string(engine.Validate().message()),
              HasSubstr("gradient_clipping_threshold 1e-60"));
  engine = {};
  engine.skip_step_scaling_factor = 1e39;
  EXPECT_THAT(std::string(engine.Validate().message()),
              HasSubstr("skip_step_scaling_factor 1e+39"));
}

}  // namespace
}  // namespace mw::train
