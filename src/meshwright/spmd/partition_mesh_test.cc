// Every op, partitioned over small meshes with random specs, gives what it gives on
// one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "meshwright/graph_testing/case_inputs.h"
#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/graph_testing/run_partitioned.h"
#include "meshwright/spmd/partition.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;

Mesh MakeMesh(const std::string& text) { return *Mesh::Create(*Mesh::ParseAxes(text)); }

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

// Sums are taken in another order, and partial sums are as large as three times the
// value (see SplitInput in run_partitioned.cc).
constexpr double kSlack = 4;

class OpsOnMeshTest : public testing::TestWithParam<const char*> {};

TEST_P(OpsOnMeshTest, PartitionedEqualsOneDevice) {
  const Mesh mesh = MakeMesh(GetParam());
  std::mt19937 random(7);
  constexpr size_t kCasesPerProgram = 60;
  const std::vector<OpCase> cases = AllOpCases();
  for (size_t begin = 0; begin < cases.size(); begin += kCasesPerProgram) {
    const size_t end = std::min(begin + kCasesPerProgram, cases.size());
    Graph graph;
    spmd::PropagateOptions options;
    options.mesh = mesh;
    std::vector<HostTensor> inputs;
    std::vector<Value> outputs;
    std::vector<std::string> names;
    for (size_t i = begin; i < end; ++i) {
      std::vector<Value> parameters;
      for (const HostTensor& input : CaseInputs(cases[i])) {
        const TensorType type(input.dtype(), input.dims());
        parameters.push_back(graph.AddParameter(type, fmt::format("x{}", inputs.size())));
        inputs.push_back(input);
        options.inputs.push_back(RandomSpec(type, mesh, true, random));
        options.weights.push_back(random() % 2 == 0);
      }
      for (const Value& v : cases[i].build(graph, parameters)) {
        outputs.push_back(v);
        names.push_back(CaseName(cases[i]));
        options.outputs.push_back(RandomSpec(v.type(), mesh, true, random));
      }
    }
    graph.SetOutputs(outputs);
    const auto expected = RunGraph(graph, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto run = RunPartitioned(graph, inputs, options);
    ASSERT_TRUE(run.ok()) << run.status();
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(Differences(run->outputs[i], (*expected)[i], kSlack), "")
          << names[i] << " with result " << options.outputs[i].ToString();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, OpsOnMeshTest,
                         testing::Values("data=2", "data=4", "data=2,tensor=2", "fsdp=2,data=3"));

}  // namespace
}  // namespace mw
