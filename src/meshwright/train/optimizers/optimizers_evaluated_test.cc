// Updates on meshes against one device's, by the evaluator: no compiler, and float64, so that
// nothing hides in rounding.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/train/mesh_settings.h"
#include "meshwright/train/step_programs.h"
#include "meshwright/train/tiny_engine_for_test.h"

namespace mw::train {
namespace {

struct Case {
  const char* opt_type;
  const char* mesh = "";
  bool zero1 = false;
  bool scan_layers = true;
  double momentum = 0.0;
  int num_layers = 2;
};

EngineOptions Options(const Case& c) {
  EngineOptions options = TestOptions();
  options.model.scan_layers = c.scan_layers;
  options.optimizer.opt_type = c.opt_type;
  options.optimizer.adafactor_min_dim_size_to_factor = 16;
  options.optimizer.adafactor_momentum = c.momentum;
  options.optimizer.adafactor_weight_decay_rate = 0.01;
  MeshSettings settings;
  settings.mesh = c.mesh;
  settings.shard_optimizer_over_data = c.zero1;
  auto mesh = settings.Resolve(0);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  options.mesh = *mesh;
  return options;
}

// Numbers of `dims` that `name` gives: the same for a stack and for its layers one by one.
HostTensor Numbers(const std::string& name, const Dims& dims, bool positive) {
  HostTensor tensor = HostTensor::Empty(DType::kF32, dims);
  std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(name)));
  std::normal_distribution<float> normal(0, 0.2F);
  for (float& x : tensor.mutable_as<float>()) {
    x = normal(random);
    if (positive) x = x * x + 1e-3F;
  }
  return tensor;
}

// Whatever an input of the update is; of a stack, layer by layer.
HostTensor InputOf(const std::string& name, const TensorType& type, int num_layers) {
  if (name == "count") return HostTensor::From<int32_t>(DType::kS32, {}, std::vector<int32_t>{3});
  if (name == "sums") {
    HostTensor sums = HostTensor::Zeros(DType::kF32, type.dims);
    sums.mutable_as<float>()[kLossSum] = 30;
    sums.mutable_as<float>()[kLossDenominator] = 10;
    return sums;
  }
  const bool positive = name.starts_with("v");
  const size_t layers = name.find("layers.");
  if (layers == std::string::npos || std::isdigit(name[layers + 7])) {
    return Numbers(name, type.dims, positive);
  }
  HostTensor stack = HostTensor::Empty(DType::kF32, type.dims);
  const int64_t n = stack.num_elements() / num_layers;
  for (int layer = 0; layer < num_layers; ++layer) {
    std::string one = name;
    one.insert(layers + 7, fmt::format("{}.", layer));
    const HostTensor part = Numbers(one, Dims(type.dims.begin() + 1, type.dims.end()), positive);
    std::ranges::copy(part.as<float>(), stack.mutable_as<float>().begin() + layer * n);
  }
  return stack;
}

// The outputs of an update by name, a stack's layer by layer.
std::map<std::string, std::vector<double>> Update(const Case& c) {
  const EngineOptions options = Options(c);
  models::ModelConfig config = MeshConfig("llama");
  config.num_layers = c.num_layers;
  const auto model = *models::CreateModel(config);
  const auto program = BuildUpdateKernel(*model, options);
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return {};
  const Mesh& mesh = options.mesh.partition.mesh;
  std::vector<DeviceTensors> inputs;
  for (const auto& input : program->inputs) {
    inputs.push_back(ShardsOf(InputOf(input.name, input.type, c.num_layers), input.type, mesh));
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
  if (!outputs.ok()) return {};
  std::map<std::string, std::vector<double>> result;
  for (size_t i = 0; i < outputs->size(); ++i) {
    const std::string& name = program->outputs[i].name;
    const TensorType& type = program->outputs[i].type;
    EXPECT_EQ(ReplicaDifference((*outputs)[i], type, mesh), "") << name;
    if (type.dtype != DType::kF32) continue;
    const std::vector<double> whole = ToExact(WholeOf((*outputs)[i], type, mesh)).floats;
    const size_t layers = name.find("layers.");
    if (layers == std::string::npos || std::isdigit(name[layers + 7])) {
      result[name] = whole;
      continue;
    }
    const auto n = static_cast<std::ptrdiff_t>(whole.size()) / c.num_layers;
    for (int layer = 0; layer < c.num_layers; ++layer) {
      std::string one = name;
      one.insert(layers + 7, fmt::format("{}.", layer));
      result[one] = {whole.begin() + layer * n, whole.begin() + (layer + 1) * n};
    }
  }
  return result;
}

double Difference(const std::map<std::string, std::vector<double>>& actual,
                  const std::map<std::string, std::vector<double>>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double worst = 0;
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    EXPECT_TRUE(found != actual.end() && found->second.size() == values.size()) << name;
    if (found == actual.end() || found->second.size() != values.size()) return HUGE_VAL;
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(found->second[i] - values[i]);
      worst = difference <= worst ? worst : difference;
    }
  }
  return worst;
}

class OptimizersEvaluatedTest : public ::testing::TestWithParam<Case> {};

TEST_P(OptimizersEvaluatedTest, GivesTheNumbersOfOneDevice) {
  Case single = GetParam();
  single.mesh = "";
  single.zero1 = false;
  const auto expected = Update(single);
  ASSERT_FALSE(expected.empty());
  EXPECT_LT(Difference(Update(GetParam()), expected), 1e-11);
}

TEST(OptimizersEvaluatedTest, AnotherUpdateIsFarBeyondTheTolerance) {
  const std::string weight = "layers.1.mlp.up_proj.weight";
  const auto of = [&](const Case& c) {
    return std::map<std::string, std::vector<double>>{{weight, Update(c).at(weight)}};
  };
  const Case muon{.opt_type = "muon"};
  EXPECT_GT(Difference(of(muon), of({.opt_type = "adafactor"})), 1e-4);
  EXPECT_EQ(Difference(of(muon), of(muon)), 0);
}

TEST_P(OptimizersEvaluatedTest, DoesNotDependOnHowLayersAreWritten) {
  Case other = GetParam();
  other.scan_layers = !other.scan_layers;
  EXPECT_LT(Difference(Update(other), Update(GetParam())), 1e-11);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* opt_type : {"adafactor", "muon"}) {
    const bool adafactor = std::string(opt_type) == "adafactor";
    for (const char* mesh :
         {"data=2", "fsdp=2", "tensor=2", "fsdp=2,tensor=2", "data=2,fsdp=2,tensor=2", "fsdp=4"}) {
      cases.push_back({opt_type, mesh});
    }
    cases.push_back({opt_type, "data=2", /*zero1=*/true, true, adafactor ? 0.9 : 0.0});
    cases.push_back({opt_type, "data=2,tensor=2", /*zero1=*/true, true, adafactor ? 0.9 : 0.0});
    // The layers do not divide over the axes that cut their matrices.
    cases.push_back({opt_type, "fsdp=2,tensor=2", false, true, 0.0, 3});
    // They do over both.
    cases.push_back({opt_type, "fsdp=2,tensor=2", false, true, 0.0, 4});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Meshes, OptimizersEvaluatedTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           std::string name =
                               fmt::format("{}_{}{}_{}", info.param.opt_type, info.param.mesh,
                                           info.param.zero1 ? "_zero1" : "", info.param.num_layers);
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

// Where the mesh's axes divide the stack, no device holds all matrices whole.
TEST(OptimizersEvaluatedTest, MuonDealsOutTheMatricesOfAStack) {
  const auto bytes = [](const Case& c, const char* kind) {
    const EngineOptions options = Options(c);
    models::ModelConfig config = MeshConfig("llama");
    config.num_layers = c.num_layers;
    const auto model = *models::CreateModel(config);
    const auto program = BuildUpdateKernel(*model, options);
    EXPECT_TRUE(program.ok()) << program.status();
    return spmd::CountCollectives(program->census, kind, "fsdp");
  };
  // Seven matrices a layer, there and back.
  EXPECT_EQ(bytes({.opt_type = "muon", .mesh = "fsdp=2"}, "all_to_all"), 14);
  EXPECT_EQ(bytes({.opt_type = "muon", .mesh = "fsdp=2"}, "all_gather"), 0);
  EXPECT_EQ(bytes({.opt_type = "muon", .mesh = "fsdp=2", .num_layers = 3}, "all_to_all"), 0);
  EXPECT_EQ(bytes({.opt_type = "muon", .mesh = "fsdp=2", .num_layers = 3}, "all_gather"), 7);
  EXPECT_EQ(bytes({.opt_type = "adamw", .mesh = "fsdp=2"}, "all_to_all"), 0);
}

}  // namespace
}  // namespace mw::train
