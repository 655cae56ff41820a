// Ten steps of each optimizer against torch's (tests/oracle/optimizers.py).
#include "meshwright/train/optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "meshwright/compile/lower.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/engine_options.h"
#include "meshwright/train/loss.h"

namespace mw::train {
namespace {

using graph::Graph;
using graph::Value;

constexpr int64_t kSteps = 10;
// Ten roundings of 6e-8 each, of terms that may cancel to a tenth.
constexpr double kSlotTolerance = 6e-6;

class OptimizerTest : public ::testing::Test {
 protected:
  HostTensor Get(const std::string& name) const {
    auto tensor = file_->Read(name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *tensor;
  }

  // Step `step` of a tensor [kSteps, …].
  static HostTensor AtStep(const HostTensor& all, int64_t step) {
    const Dims dims(all.dims().begin() + 1, all.dims().end());
    const int64_t n = all.num_elements() / kSteps;
    return HostTensor::From<float>(DType::kF32, dims, all.as<float>().subspan(step * n, n));
  }

  // The largest difference, relative to max(|value|, smallest): slots span many orders of
  // magnitude, and the smallest of them matter as much as the largest.
  static double MaxError(const HostTensor& actual, const HostTensor& expected, double smallest) {
    EXPECT_EQ(actual.dims(), expected.dims());
    double worst = 0;
    for (int64_t i = 0; i < expected.num_elements(); ++i) {
      const double wanted = expected.as<float>()[i];
      const double error =
          std::abs(actual.as<float>()[i] - wanted) / std::max(smallest, std::abs(wanted));
      worst = error <= worst ? worst : error;
    }
    return worst;
  }

  struct Errors {
    double param = HUGE_VAL;
    double slots = HUGE_VAL;
  };
  // Runs all steps of one parameter through one graph. Returns the largest error of the
  // parameter after any step and of the slots after the last.
  Errors Run(const std::string& oracle, const OptimizerOptions& options, const std::string& name,
             bool decay) {
    auto optimizer = CreateOptimizer(options);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    const HostTensor start = Get("start/" + name);
    const TensorType type(DType::kF32, start.dims());
    Graph g;
    const Value param = g.AddParameter(type, "param");
    const Value grad = g.AddParameter(type, "grad");
    const Value rate = g.AddParameter(TensorType(DType::kF32, {}), "rate");
    const Value count = g.AddParameter(TensorType(DType::kS32, {}), "count");
    std::vector<Value> slots;
    for (const std::string& slot : (*optimizer)->slots()) {
      slots.push_back(g.AddParameter(type, slot));
    }
    (*optimizer)->Begin(rate, count);
    Optimizer::Result result = (*optimizer)->Apply(param, grad, slots, decay);
    std::vector<Value> outputs = {result.param};
    outputs.insert(outputs.end(), result.slots.begin(), result.slots.end());
    g.SetOutputs(outputs);
    const auto client = TestClient("cpu");
    EXPECT_TRUE(client.ok()) << client.status();
    auto executable = (*client)->Compile(compile::LowerToStableHlo(g, "optimizer"));
    EXPECT_TRUE(executable.ok()) << executable.status();
    if (!executable.ok()) return {};

    const HostTensor rates = Get("rates");
    const HostTensor gradients = Get("gradients/" + name);
    const HostTensor expected = Get(oracle + "/" + name);
    std::vector<HostTensor> values = {start};
    for (size_t s = 0; s < slots.size(); ++s) {
      values.push_back(HostTensor::Zeros(DType::kF32, start.dims()));
    }
    Errors worst{0, 0};
    for (int64_t step = 0; step < kSteps; ++step) {
      std::vector<HostTensor> inputs = {
          values[0], AtStep(gradients, step),
          HostTensor::From<float>(DType::kF32, {}, rates.as<float>().subspan(step, 1)),
          HostTensor::From<int32_t>(DType::kS32, {},
                                    std::vector<int32_t>{static_cast<int32_t>(step)})};
      inputs.insert(inputs.end(), values.begin() + 1, values.end());
      std::vector<runtime::Buffer> buffers;
      for (const HostTensor& input : inputs) buffers.push_back(*(*client)->Upload(input));
      std::vector<runtime::Buffer*> args;
      for (runtime::Buffer& buffer : buffers) args.push_back(&buffer);
      const auto out = executable->Execute(args);
      EXPECT_TRUE(out.ok()) << out.status();
      if (!out.ok()) return {};
      for (size_t i = 0; i < values.size(); ++i) values[i] = *(*out)[i].ToHost();
      worst.param = std::max(worst.param, MaxError(values[0], AtStep(expected, step), 1));
    }
    for (size_t s = 0; s < slots.size(); ++s) {
      const std::string& slot = (*optimizer)->slots()[s];
      worst.slots = std::max(worst.slots,
                             MaxError(values[s + 1], Get(oracle + "/" + slot + "/" + name), 1e-30));
    }
    return worst;
  }

  std::shared_ptr<io::SafetensorsFile> file_ = *io::SafetensorsFile::Open(
      MW_SOURCE_DIR "/src/meshwright/train/testdata/optimizers.safetensors");
};

TEST_F(OptimizerTest, AdamWEqualsTorch) {
  const OptimizerOptions options;
  for (const bool matrix : {true, false}) {
    const std::string name = matrix ? "matrix" : "norm";
    const Errors error = Run("adamw", options, name, matrix);
    RecordProperty("adamw_" + name, fmt::format("{:.1e} {:.1e}", error.param, error.slots));
    EXPECT_LE(error.param, 1e-6) << name;
    EXPECT_LE(error.slots, kSlotTolerance) << name;
  }
}

TEST_F(OptimizerTest, AWrongSettingIsFarBeyondTheTolerance) {
  OptimizerOptions options;
  // The decay of what must not decay, and none of what must.
  EXPECT_GT(Run("adamw", options, "norm", true).param, 1e-4);
  EXPECT_GT(Run("adamw", options, "matrix", false).param, 1e-4);
  options.adam_b2 = 0.999;
  EXPECT_GT(Run("adamw", options, "matrix", true).param, 1e-4);
}

TEST_F(OptimizerTest, SgdEqualsTorch) {
  for (const double momentum : {0.0, 0.9}) {
    OptimizerOptions options;
    options.opt_type = "sgd";
    options.sgd_momentum = momentum;
    for (const char* name : {"matrix", "norm"}) {
      const Errors error = Run(momentum == 0 ? "sgd" : "sgd_momentum", options, name, true);
      EXPECT_LE(error.param, 1e-6) << name << " " << momentum;
      EXPECT_LE(error.slots, kSlotTolerance) << name << " " << momentum;
    }
  }
}

TEST_F(OptimizerTest, Bfloat16WeightsAreRoundedOnce) {
  auto optimizer = CreateOptimizer(OptimizerOptions{});
  ASSERT_TRUE(optimizer.ok());
  const HostTensor start = Get("start/matrix").ConvertTo(DType::kBF16);
  const HostTensor grad = AtStep(Get("gradients/matrix"), 0);
  const HostTensor zero = HostTensor::Zeros(DType::kF32, start.dims());
  const auto update = [&](const HostTensor& param) {
    Graph g;
    const TensorType f32(DType::kF32, start.dims());
    const Value p = g.AddParameter(TensorType(param.dtype(), param.dims()), "param");
    const Value gradient = g.AddParameter(f32, "grad");
    const Value rate = g.AddParameter(TensorType(DType::kF32, {}), "rate");
    const Value count = g.AddParameter(TensorType(DType::kS32, {}), "count");
    const std::vector<Value> slots = {g.AddParameter(f32, "m"), g.AddParameter(f32, "v")};
    (*optimizer)->Begin(rate, count);
    g.SetOutputs({(*optimizer)->Apply(p, gradient, slots, true).param});
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
