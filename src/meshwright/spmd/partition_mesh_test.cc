// Every op, partitioned over small meshes with random specs, gives what it gives on
// one device.
//
//   MW_MESH_SEED=N   other specs
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>

#include "meshwright/graph_testing/case_inputs.h"
#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/graph_testing/gradient_check.h"
#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/spmd/partition.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;

Mesh MakeMesh(const std::string& text) { return *Mesh::Create(*Mesh::ParseAxes(text)); }

uint32_t Seed() {
  const char* text = std::getenv("MW_MESH_SEED");
  return static_cast<uint32_t>(text != nullptr ? std::atoll(text) : 7);
}

// Axes at random on dims that they divide, some of the rest unreduced.
PartitionSpec RandomSpec(const TensorType& type, const Mesh& mesh, bool unreduced,
                         std::mt19937& random) {
  PartitionSpec spec;
  spec.dims.resize(type.dims.size());
  std::vector<MeshAxis> axes = mesh.axes();
  std::ranges::shuffle(axes, random);
  for (const MeshAxis& axis : axes) {
    const size_t choice = random() % (type.dims.size() + 2);
    if (choice < type.dims.size()) {
      std::vector<std::string>& dim = spec.dims[choice];
      dim.push_back(axis.name);
      if (type.dims[choice] % mesh.Size(dim) != 0) dim.pop_back();
    } else if (choice == type.dims.size() && unreduced && IsFloat(type.dtype)) {
      spec.unreduced.push_back(axis.name);
    }
  }
  return Canonical(spec, mesh);
}

// `graph` with random places for its inputs and outputs.
spmd::PropagateOptions RandomPlaces(const Graph& graph, const Mesh& mesh, std::mt19937& random) {
  spmd::PropagateOptions options;
  options.mesh = mesh;
  for (const Value& v : graph.parameters()) {
    options.inputs.push_back(RandomSpec(v.type(), mesh, true, random));
    options.weights.push_back(random() % 2 == 0);
  }
  for (const Value& v : graph.outputs()) {
    options.outputs.push_back(RandomSpec(v.type(), mesh, true, random));
  }
  return options;
}

std::string SpecsText(const std::vector<PartitionSpec>& specs) {
  std::string text;
  for (const PartitionSpec& spec : specs) text += spec.ToString() + " ";
  return text;
}

// Sums are taken in another order, and partial sums are as large as three times the
// value (see SplitInput in run_partitioned.cc).
constexpr double kSlack = 4;

class OpsOnMeshTest : public testing::TestWithParam<const char*> {};

// A case and its gradient at a time and many places of each: nothing is compiled.
TEST_P(OpsOnMeshTest, PartitionedEqualsOneDeviceEvaluated) {
  const Mesh mesh = MakeMesh(GetParam());
  std::mt19937 random(Seed());
  constexpr int kPlaces = 100;
  for (const OpCase& c : AllOpCases()) {
    const CaseWithGradients both = WithGradients(c);
    const Graph& graph = *both.graph;
    std::vector<DeviceTensors> whole;
    for (const HostTensor& input : both.inputs) {
      whole.push_back({std::make_shared<const ExactTensor>(ToExact(input))});
    }
    const auto expected = Evaluate(graph, whole, 1);
    ASSERT_TRUE(expected.ok()) << CaseName(c) << ": " << expected.status();
    for (int place = 0; place < kPlaces; ++place) {
      const spmd::PropagateOptions options = RandomPlaces(graph, mesh, random);
      const auto run = EvaluatePartitioned(graph, both.inputs, options);
      const auto where = [&] {
        return fmt::format("{} of {}to {}", CaseName(c), SpecsText(options.inputs),
                           SpecsText(options.outputs));
      };
      ASSERT_TRUE(run.ok()) << run.status() << "\n" << where();
      for (size_t i = 0; i < run->outputs.size(); ++i) {
        const TensorType type(run->outputs[i].dtype(), graph.outputs()[i].dims());
        EXPECT_EQ(Differences(run->outputs[i], ToHost(*(*expected)[i][0], type), kSlack), "")
            << "result " << i << ": " << where();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, OpsOnMeshTest,
                         testing::Values("data=2", "data=4", "data=2,tensor=2", "fsdp=2,data=3",
                                         "tensor=2,data=2,fsdp=2"));

// One place of each case, all compiled for devices: what the evaluator says of partitioned
// programs is true.
TEST(OpsOnDevicesTest, PartitionedEqualsOneDeviceEvaluated) {
  const Mesh mesh = MakeMesh("data=2,tensor=2");
  std::mt19937 random(Seed());
  constexpr size_t kCasesPerProgram = 60;
  const std::vector<OpCase> cases = AllOpCases();
  for (size_t begin = 0; begin < cases.size(); begin += kCasesPerProgram) {
    const size_t end = std::min(begin + kCasesPerProgram, cases.size());
    Graph graph;
    std::vector<HostTensor> inputs;
    std::vector<Value> outputs;
    std::vector<std::string> names;
    for (size_t i = begin; i < end; ++i) {
      std::vector<Value> parameters;
      for (const HostTensor& input : CaseInputs(cases[i])) {
        parameters.push_back(graph.AddParameter(TensorType(input.dtype(), input.dims()),
                                                fmt::format("x{}", inputs.size())));
        inputs.push_back(input);
      }
      for (const Value& v : cases[i].build(graph, parameters)) {
        outputs.push_back(v);
        names.push_back(CaseName(cases[i]));
      }
    }
    graph.SetOutputs(outputs);
    const spmd::PropagateOptions options = RandomPlaces(graph, mesh, random);
    const auto expected = EvaluateGraph(graph, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto run = RunPartitioned(graph, inputs, options);
    ASSERT_TRUE(run.ok()) << run.status();
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(Differences(run->outputs[i], (*expected)[i], kSlack), "")
          << names[i] << " with result " << options.outputs[i].ToString();
    }
  }
}

}  // namespace
}  // namespace mw
