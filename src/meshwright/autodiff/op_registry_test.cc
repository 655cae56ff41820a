// What every registered op must have: a case, a refused shape, a lowering that both
// CPU plugins run with the results of other people's code, and a gradient that
// agrees with finite differences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "meshwright/compile/lower.h"
#include "meshwright/graph_testing/case_inputs.h"
#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/graph_testing/gradient_check.h"
#include "meshwright/graph_testing/op_cases.h"
#include "meshwright/graph_testing/run_graph.h"
#include "meshwright/ops/elementwise.h"
#include "meshwright/ops/mul.h"
#include "meshwright/ops/op_def.h"
#include "meshwright/testing/golden.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;
using nlohmann::json;

constexpr const char* kPlugins[] = {"cpu", "cpu-xla"};
// Enough cases a program to save compilations, few enough to find a culprit.
constexpr size_t kCasesPerProgram = 40;

const std::vector<OpCase>& Cases() {
  static const auto* const cases = new std::vector<OpCase>(AllOpCases());
  return *cases;
}

// Ops that take any operand, so that no shape can be refused.
const std::set<std::string>& OpsThatTakeAnything() {
  static const auto* const ops = new std::set<std::string>{
      "convert", "materialize", "optimization_barrier", "remat", "stop_gradient"};
  return *ops;
}

// Builders made of other ops, which refuse operands in their own name.
const std::set<std::string>& ComposedBuilders() {
  static const auto* const builders =
      new std::set<std::string>{"argmax", "einsum", "random_bits", "take_along_last"};
  return *builders;
}

// custom_call runs only where its target is registered; structural_test.cc and the
// tests of kernels cover it. What only means something on a mesh is covered by
// collective_test.cc and the mesh tests of spmd.
bool HasNoCases(const std::string& op) {
  static const auto* const ops = new std::set<std::string>{
      "custom_call", "all_gather", "all_reduce", "all_to_all", "reduce_scatter", "reshard"};
  return ops->contains(op);
}

void AddCase(const OpCase& c, Graph* graph, std::vector<Value>* outputs,
             std::vector<HostTensor>* inputs) {
  std::vector<Value> parameters;
  for (const HostTensor& input : CaseInputs(c)) {
    parameters.push_back(graph->AddParameter(TensorType(input.dtype(), input.dims()),
                                             fmt::format("x{}", inputs->size())));
    inputs->push_back(input);
  }
  for (const Value& v : c.build(*graph, parameters)) outputs->push_back(v);
}

TEST(OpRegistryTest, NamesAreUniqueAndEveryOpHasACase) {
  std::set<std::string> with_case, case_names, op_names;
  for (const OpCase& c : Cases()) {
    with_case.insert(c.op);
    EXPECT_TRUE(case_names.insert(CaseName(c)).second) << CaseName(c) << " is there twice";
  }
  for (const ops::OpDef* op : ops::AllOps()) {
    const std::string name(op->name());
    EXPECT_TRUE(op_names.insert(name).second) << name << " is registered twice";
    EXPECT_NE(with_case.contains(name), HasNoCases(name))
        << name << ": add a case to graph_testing/op_cases_*.cc";
  }
  for (const std::string& name : with_case) {
    EXPECT_TRUE(op_names.contains(name)) << name << " has cases but is not in op_list.inc";
  }
}

TEST(OpRegistryTest, CasesUseTheirOp) {
  for (const OpCase& c : Cases()) {
    Graph graph;
    std::vector<Value> outputs;
    std::vector<HostTensor> inputs;
    AddCase(c, &graph, &outputs, &inputs);
    const bool used = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                  [&](const auto& node) { return node->op_name() == c.op; });
    EXPECT_TRUE(used) << CaseName(c);
  }
}

TEST(OpRegistryTest, EveryOpRefusesAShape) {
  std::set<std::string> refused;
  for (const OpCase& c : Cases()) {
    if (!c.rejected) continue;
    refused.insert(c.op);
    Graph graph;
    try {
      c.rejected(graph);
      ADD_FAILURE() << CaseName(c) << ": the operands that must be refused were taken";
    } catch (const GraphError& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.what();
      EXPECT_TRUE(error.op() == c.op || ComposedBuilders().contains(error.op())) << error.what();
      EXPECT_GT(std::string(error.what()).size(), error.op().size() + 10) << error.what();
    }
  }
  for (const ops::OpDef* op : ops::AllOps()) {
    const std::string name(op->name());
    if (HasNoCases(name)) continue;
    EXPECT_NE(refused.contains(name), OpsThatTakeAnything().contains(name))
        << name << ": one case must have operands that its shape rule refuses";
  }
}

// Fills `graph` with one case; returns its inputs.
std::vector<HostTensor> BuildCase(const OpCase& c, Graph& graph) {
  std::vector<Value> outputs;
  std::vector<HostTensor> inputs;
  AddCase(c, &graph, &outputs, &inputs);
  graph.SetOutputs(outputs);
  return inputs;
}

TEST(OpRegistryTest, LoweringMatchesGolden) {
  std::map<std::string, std::string> text;
  for (const OpCase& c : Cases()) {
    Graph graph;
    BuildCase(c, graph);
    graph.Verify();
    text[c.op] += fmt::format("// {}\n{}", CaseName(c), compile::LowerToStableHlo(graph, "case"));
  }
  for (const auto& [op, lowered] : text) {
    ExpectGolden(lowered, fmt::format("src/meshwright/ops/testdata/golden/{}.mlir", op));
  }
}

// The graphs and inputs of all cases, for tests/oracle/ops.py.
void Export(const char* path) {
  json all = json::object();
  for (const OpCase& c : Cases()) {
    Graph graph;
    const std::vector<HostTensor> inputs = BuildCase(c, graph);
    json tensors = json::array();
    for (const HostTensor& input : inputs) tensors.push_back(TensorToJson(input));
    all[CaseName(c)] = {{"graph", GraphToJson(graph)}, {"inputs", std::move(tensors)}};
  }
  std::ofstream(path) << all.dump();
}

// JAX's inputs and outputs of each case, by its name.
json Reference() {
  const std::string path =
      std::string(MW_SOURCE_DIR) + "/src/meshwright/ops/testdata/op_reference.json";
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path << " is missing; tests/oracle/ops.py says how to make it";
  return file.good() ? json::parse(file).at("cases") : json::object();
}

TEST(OpRegistryTest, ResultsMatchJaxOnBothPlugins) {
  if (const char* path = std::getenv("MW_EXPORT_OP_CASES")) Export(path);
  const json reference = Reference();
  ASSERT_EQ(reference.size(), Cases().size());

  for (size_t begin = 0; begin < Cases().size(); begin += kCasesPerProgram) {
    const size_t end = std::min(begin + kCasesPerProgram, Cases().size());
    Graph graph;
    std::vector<Value> outputs;
    std::vector<HostTensor> inputs;
    std::vector<std::pair<std::string, HostTensor>> expected;
    for (size_t i = begin; i < end; ++i) {
      const OpCase& c = Cases()[i];
      ASSERT_TRUE(reference.contains(CaseName(c)))
          << CaseName(c) << " has no reference; tests/oracle/ops.py says how to make it";
      const json& stored = reference.at(CaseName(c));
      const size_t first_input = inputs.size();
      AddCase(c, &graph, &outputs, &inputs);
      for (size_t k = first_input; k < inputs.size(); ++k) {
        ASSERT_EQ(TensorToJson(inputs[k]), stored.at("inputs").at(k - first_input))
            << CaseName(c) << ": the reference was made for other inputs";
      }
      for (const json& output : stored.at("outputs")) {
        expected.emplace_back(CaseName(c), TensorFromJson(output));
      }
      ASSERT_EQ(expected.size(), outputs.size()) << CaseName(c);
    }
    graph.SetOutputs(outputs);
    for (const char* plugin : kPlugins) {
      const auto actual = RunGraph(graph, inputs, {.plugin = plugin});
      ASSERT_TRUE(actual.ok()) << plugin << ", cases " << CaseName(Cases()[begin]) << " to "
                               << CaseName(Cases()[end - 1]) << ": " << actual.status();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(Differences((*actual)[i], expected[i].second), "")
            << expected[i].first << " on " << plugin;
      }
    }
  }
}

// custom_call runs code that only a plugin knows.
TEST(OpRegistryTest, EveryOpButCustomCallsHasAnEvaluation) {
  for (const ops::OpDef* op : ops::AllOps()) {
    EXPECT_NE(HasEvaluation(op->name()), op->name() == "custom_call")
        << op->name() << ": add it to graph_testing/evaluator_*.cc";
  }
}

TEST(OpRegistryTest, EvaluatorMatchesJax) {
  const json reference = Reference();
  for (const OpCase& c : Cases()) {
    Graph graph;
    const std::vector<HostTensor> inputs = BuildCase(c, graph);
    const auto actual = EvaluateGraph(graph, inputs);
    ASSERT_TRUE(actual.ok()) << CaseName(c) << ": " << actual.status();
    ASSERT_TRUE(reference.contains(CaseName(c))) << CaseName(c) << " has no reference";
    const json& expected = reference.at(CaseName(c)).at("outputs");
    ASSERT_EQ(actual->size(), expected.size()) << CaseName(c);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(Differences((*actual)[i], TensorFromJson(expected[i])), "") << CaseName(c);
    }
  }
}

TEST(OpRegistryTest, GradientsMatchFiniteDifferences) {
  std::set<std::string> checked;
  std::vector<OpCase> cases;
  for (const OpCase& c : Cases()) {
    if (!c.check_gradient) continue;
    checked.insert(c.op);
    cases.push_back(c);
  }
  for (const ops::OpDef* op : ops::AllOps()) {
    const std::string name(op->name());
    if (HasNoCases(name)) continue;
    EXPECT_TRUE(checked.contains(name) || !op->differentiable())
        << name << ": no case checks its gradient";
  }
  for (size_t begin = 0; begin < cases.size(); begin += kCasesPerProgram) {
    const auto wrong = CheckGradients(std::vector<OpCase>(
        cases.begin() + begin, cases.begin() + std::min(begin + kCasesPerProgram, cases.size())));
    ASSERT_TRUE(wrong.ok()) << wrong.status();
    for (const std::string& message : *wrong) ADD_FAILURE() << message;
  }
}

// Says that the derivative of 3x is 2.
class WrongTripleOp final : public ops::ElementwiseOp {
 public:
  WrongTripleOp() : ElementwiseOp("wrong_triple", "", 1) {}
  void Vjp(ops::VjpContext& ctx) const override { ctx.Add(0, ops::Mul(ctx.ct(), 2)); }
  void Lower(ops::LowerContext& ctx) const override {
    const std::string type = stablehlo::TypeText(ctx.node().types()[0]);
    const TensorType& x = ctx.node().types()[0];
    const std::string three = ctx.writer().Splat(x.dtype, x.dims, 3);
    ctx.Set(0, ctx.writer().Assign(
                   fmt::format("stablehlo.multiply {}, {} : {}", ctx.operand(0), three, type)));
  }
};

TEST(OpRegistryTest, GradientCheckSeesAWrongVjp) {
  static const WrongTripleOp* const op = new WrongTripleOp();
  OpCase c;
  c.op = "wrong_triple";
  c.inputs = {TensorType(DType::kF32, {3})};
  c.build = [](Graph&, const std::vector<Value>& in) {
    return std::vector<Value>{graph::Apply(*op, {in[0]})};
  };
  const auto wrong = CheckGradients({c});
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_EQ(wrong->size(), 1u);
}

TEST(OpRegistryTest, ComparisonSeesAWrongElement) {
  const HostTensor expected = FromDoubles(DType::kF32, {2}, {1, 2});
  EXPECT_EQ(Differences(expected, expected), "");
  EXPECT_NE(Differences(FromDoubles(DType::kF32, {2}, {1, 2.0001}), expected), "");
  EXPECT_NE(Differences(FromDoubles(DType::kF32, {2}, {1, std::nan("")}), expected), "");
  EXPECT_NE(Differences(FromDoubles(DType::kF64, {2}, {1, 2}), expected), "");
}

}  // namespace
}  // namespace mw
