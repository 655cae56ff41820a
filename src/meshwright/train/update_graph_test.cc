// The update by itself, run by the evaluator: what a whole engine would hide.
#include "meshwright/train/update_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/step_params.h"
#include "meshwright/train/step_programs.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

using ::testing::HasSubstr;

// Runs an update of the model's parameters; inputs are zeros but for `fill`, and a denominator
// of 1.
std::map<std::string, std::vector<double>> Update(
    const models::Model& model, const EngineOptions& options,
    const std::function<void(const std::string&, HostTensor&)>& fill) {
  const auto program = BuildUpdateKernel(model, options);
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return {};
  const Mesh& mesh = options.mesh.partition.mesh;
  std::vector<DeviceTensors> inputs;
  for (const auto& input : program->inputs) {
    HostTensor tensor = HostTensor::Zeros(input.type.dtype, input.type.dims);
    if (input.name == "sums") tensor.mutable_as<float>()[kLossDenominator] = 1;
    fill(input.name, tensor);
    inputs.push_back(ShardsOf(tensor, input.type, mesh));
  }
  if (program->has_coordinates) {
    DeviceTensors& coordinates = inputs.emplace_back();
    for (int64_t d = 0; d < mesh.num_devices(); ++d) {
      coordinates.push_back(
          std::make_shared<const ExactTensor>(ExactTensor{{}, mesh.Coordinates(d)}));
    }
  }
  const auto outputs = Evaluate(*program->graph, inputs, mesh.num_devices());
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  std::map<std::string, std::vector<double>> result;
  for (size_t i = 0; outputs.ok() && i < outputs->size(); ++i) {
    const TensorType& type = program->outputs[i].type;
    EXPECT_EQ(ReplicaDifference((*outputs)[i], type, mesh), "") << program->outputs[i].name;
    result[program->outputs[i].name] = ToExact(WholeOf((*outputs)[i], type, mesh)).floats;
  }
  return result;
}

EngineOptions OnMesh(const std::string& mesh) {
  EngineOptions options = TestOptions();
  MeshSettings settings;
  settings.mesh = mesh;
  auto resolved = settings.Resolve(0);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  options.mesh = *resolved;
  return options;
}

// Squares of 100 in a weight that is cut, of 25 in one that every device has: a sum by device
// would count the latter once for each, and give the root of 150.
TEST(UpdateGraphTest, TheGradientNormCountsEachElementOnce) {
  const auto model = *models::CreateModel(MeshConfig("llama"));
  const auto fill = [](const std::string& name, HostTensor& tensor) {
    if (name == "grad.layers.mlp.up_proj.weight") {
      tensor.mutable_as<float>().front() = 6;
      tensor.mutable_as<float>().back() = -8;
    }
    if (name == "grad.norm.weight") {
      tensor.mutable_as<float>().front() = 3;
      tensor.mutable_as<float>().back() = 4;
    }
  };
  for (const char* mesh : {"", "tensor=2", "fsdp=2", "data=2", "data=2,fsdp=2,tensor=2"}) {
    EngineOptions options = OnMesh(mesh);
    options.gradient_clipping_threshold = 1;
    const std::vector<double> metrics = Update(*model, options, fill).at("metrics");
    EXPECT_NEAR(metrics[kGradNorm], 11.180340, 1e-6) << mesh;
    EXPECT_NEAR(metrics[kClippedGradNorm], 1, 1e-6) << mesh;
  }
}

TEST(UpdateGraphTest, WhatIsNotNamedIsNotTrained) {
  const auto model = *models::CreateModel(TinyConfig());
  EngineOptions options = TestOptions();
  options.trainable_parameters = "*.mlp.*,!*.down_proj.*";
  const auto update = BuildUpdateKernel(*model, options);
  ASSERT_TRUE(update.ok()) << update.status();
  std::vector<std::string> names;
  for (const auto& input : update->inputs) names.push_back(input.name);
  const std::string gate = "layers.mlp.gate_proj.weight";
  const std::string up = "layers.mlp.up_proj.weight";
  EXPECT_THAT(names,
              ::testing::ElementsAre(gate, up, "m." + gate, "v." + gate, "m." + up, "v." + up,
                                     "count", "grad." + gate, "grad." + up, "sums"));
  const auto first = BuildFirstKernel(*model, options, {1, kTokens});
  ASSERT_TRUE(first.ok()) << first.status();
  names.clear();
  for (const auto& output : first->outputs) names.push_back(output.name);
  EXPECT_THAT(names, ::testing::ElementsAre("grad." + gate, "grad." + up, "sums"));
  options.trainable_parameters = "*.mpl.*";
  EXPECT_THAT(std::string(BuildUpdateKernel(*model, options).status().message()),
              HasSubstr("trainable_parameters: the pattern \"*.mpl.*\" matches no parameter"));
}

// With a gradient of zeros the decay is all that moves a weight.
TEST(UpdateGraphTest, WeightDecayIsOfTheParametersThatAreNamed) {
  const auto model = *models::CreateModel(TinyConfig());
  const auto moved = [&](const std::string& patterns, const std::string& opt_type) {
    EngineOptions options = TestOptions();
    options.optimizer.opt_type = opt_type;
    options.optimizer.adafactor_weight_decay_rate = 0.1;
    options.weight_decay_parameters = patterns;
    const std::vector<nn::ParamSpec> params = model->Params(options.model);
    std::vector<std::string> names;
    const auto result = Update(*model, options, [&](const std::string& name, HostTensor& tensor) {
      if (std::ranges::find(params, name, &nn::ParamSpec::name) == params.end()) return;
      for (float& x : tensor.mutable_as<float>()) x = 1;
    });
    for (const nn::ParamSpec& param : params) {
      if (result.at(param.name)[0] != 1) names.push_back(param.name);
    }
    return names;
  };
  for (const char* opt_type : {"adamw", "adafactor", "muon"}) {
    EXPECT_THAT(moved("norm.weight,*.up_proj.*", opt_type),
                ::testing::ElementsAre("layers.mlp.up_proj.weight", "norm.weight"))
        << opt_type;
    EXPECT_EQ(moved("", opt_type).size(), 9U) << opt_type;
  }
  EXPECT_TRUE(moved("", "sgd").empty());
  EngineOptions options = TestOptions();
  options.weight_decay_parameters = "*.upproj.*";
  EXPECT_THAT(std::string(StepParams::Create(*model, options).status().message()),
              HasSubstr("weight_decay_parameters: the pattern \"*.upproj.*\" matches no parameter; "
                        "the nearest is \"layers.mlp.up_proj.weight\""));
}

}  // namespace
}  // namespace mw::train
