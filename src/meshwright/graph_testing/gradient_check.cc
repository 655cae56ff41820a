#include "meshwright/graph_testing/gradient_check.h"

#include <fmt/format.h>

#include <cmath>

#include "meshwright/autodiff/gradient.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/graph_testing/case_inputs.h"

namespace mw {
namespace {

using graph::Graph;
using graph::Value;

TensorType Widened(const TensorType& type) {
  return TensorType(IsFloat(type.dtype) ? DType::kF64 : type.dtype, type.dims);
}

// One case inside the shared programs.
struct Placed {
  explicit Placed(const OpCase& c) : op_case(&c) {}
  const OpCase* op_case;
  std::vector<HostTensor> inputs;
  std::vector<HostTensor> directions;  // of the float inputs, zeros elsewhere
  std::vector<HostTensor> cotangents;  // of the float outputs; empty elsewhere
  bool narrow = false;                 // computes in less than float64
  size_t first_output = 0;
  size_t num_outputs = 0;
};

bool HasNarrowFloat(const Graph& graph, size_t first_node) {
  for (size_t i = first_node; i < graph.nodes().size(); ++i) {
    for (const TensorType& type : graph.nodes()[i]->types()) {
      if (IsFloat(type.dtype) && type.dtype != DType::kF64) return true;
    }
  }
  return false;
}

// Away from zero, so that no element of a gradient is left out.
HostTensor Direction(const TensorType& type, const std::string& key, int index) {
  std::vector<double> values = ToDoubles(RandomTensor(type, -1, 1, key, index));
  for (double& v : values) v = std::copysign(0.25 + 0.75 * std::abs(v), v);
  return FromDoubles(type.dtype, type.dims, values);
}

HostTensor Shifted(const HostTensor& x, const HostTensor& d, double step) {
  if (!IsFloat(x.dtype())) return x;
  std::vector<double> values = ToDoubles(x);
  const std::vector<double> direction = ToDoubles(d);
  for (size_t i = 0; i < values.size(); ++i) values[i] += step * direction[i];
  return FromDoubles(x.dtype(), x.dims(), values);
}

struct Sum {
  double value = 0;
  double magnitude = 0;
  void AddDot(const HostTensor& a, const HostTensor& b) {
    const std::vector<double> x = ToDoubles(a);
    const std::vector<double> y = ToDoubles(b);
    for (size_t i = 0; i < x.size(); ++i) {
      value += x[i] * y[i];
      magnitude += std::abs(x[i] * y[i]);
    }
  }
};

Sum Loss(const Placed& placed, const std::vector<HostTensor>& outputs) {
  Sum sum;
  for (size_t i = 0; i < placed.num_outputs; ++i) {
    if (!IsFloat(placed.cotangents[i].dtype())) continue;
    sum.AddDot(placed.cotangents[i], outputs[placed.first_output + i]);
  }
  return sum;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckGradients(const std::vector<OpCase>& cases,
                                                        const RunOptions& options) {
  Graph forward;
  std::vector<Placed> all;
  std::vector<Value> outputs;
  std::vector<HostTensor> points;  // every case's inputs
  std::vector<int> wrt;            // the places of the float ones among them
  for (const OpCase& op_case : cases) {
    Placed placed(op_case);
    placed.first_output = outputs.size();
    const std::string key = CaseName(op_case);
    const size_t first_node = forward.nodes().size();
    std::vector<Value> parameters;
    for (const HostTensor& input : CaseInputs(op_case)) {
      const int index = static_cast<int>(placed.inputs.size());
      const TensorType type = Widened(TensorType(input.dtype(), input.dims()));
      if (IsFloat(type.dtype)) wrt.push_back(static_cast<int>(points.size()));
      placed.inputs.push_back(IsFloat(type.dtype) ? input.ConvertTo(DType::kF64) : input);
      placed.directions.push_back(IsFloat(type.dtype) ? Direction(type, key, 1000 + index)
                                                      : HostTensor::Zeros(type.dtype, {0}));
      points.push_back(placed.inputs.back());
      parameters.push_back(forward.AddParameter(type, fmt::format("x{}", points.size())));
    }
    const std::vector<Value> results = op_case.build(forward, parameters);
    placed.narrow = HasNarrowFloat(forward, first_node);
    placed.num_outputs = results.size();
    outputs.insert(outputs.end(), results.begin(), results.end());
    for (size_t i = 0; i < results.size(); ++i) {
      const TensorType& type = results[i].type();
      placed.cotangents.push_back(IsFloat(type.dtype)
                                      ? Direction(type, key, 2000 + static_cast<int>(i))
                                      : HostTensor::Zeros(type.dtype, {0}));
    }
    all.push_back(std::move(placed));
  }
  forward.SetOutputs(outputs);

  Graph reverse;
  std::vector<HostTensor> reverse_inputs = points;
  std::vector<Value> arguments;
  for (const Value& p : forward.parameters()) {
    arguments.push_back(reverse.AddParameter(p.type(), fmt::format("x{}", arguments.size())));
  }
  std::vector<Value> cotangents;
  for (const Placed& placed : all) {
    for (const HostTensor& c : placed.cotangents) {
      if (!IsFloat(c.dtype())) {
        cotangents.emplace_back();
        continue;
      }
      cotangents.push_back(reverse.AddParameter(TensorType(c.dtype(), c.dims()),
                                                fmt::format("ct{}", cotangents.size())));
      reverse_inputs.push_back(c);
    }
  }
  reverse.SetOutputs(autodiff::BuildVjp(reverse, forward, arguments, wrt, cotangents).gradients);
  reverse.Verify();
  MW_ASSIGN_OR_RETURN(const std::vector<HostTensor> gradients,
                      RunGraph(reverse, reverse_inputs, options));

  auto evaluate = [&](double sign) {
    std::vector<HostTensor> inputs;
    for (const Placed& placed : all) {
      const double step = placed.narrow ? 0x1p-7 : 0x1p-17;
      for (size_t i = 0; i < placed.inputs.size(); ++i) {
        inputs.push_back(Shifted(placed.inputs[i], placed.directions[i], sign * step));
      }
    }
    return RunGraph(forward, inputs, options);
  };
  MW_ASSIGN_OR_RETURN(const std::vector<HostTensor> above, evaluate(1));
  MW_ASSIGN_OR_RETURN(const std::vector<HostTensor> below, evaluate(-1));

  std::vector<std::string> wrong;
  size_t next_gradient = 0;
  for (const Placed& placed : all) {
    const double step = placed.narrow ? 0x1p-7 : 0x1p-17;
    const Sum high = Loss(placed, above);
    const Sum low = Loss(placed, below);
    Sum by_gradient;
    for (size_t i = 0; i < placed.inputs.size(); ++i) {
      if (!IsFloat(placed.inputs[i].dtype())) continue;
      by_gradient.AddDot(gradients[next_gradient++], placed.directions[i]);
    }
    const double by_difference = (high.value - low.value) / (2 * step);
    const double bound = (placed.narrow ? 2e-3 : 1e-6) * (by_gradient.magnitude + high.magnitude);
    // Written so that NaN is wrong too.
    if (!(std::abs(by_gradient.value - by_difference) <= bound)) {
      wrong.push_back(
          fmt::format("{}: the Vjp gives a directional derivative of {} but finite "
                      "differences give {} (allowed difference {})",
                      CaseName(*placed.op_case), by_gradient.value, by_difference, bound));
    }
  }
  return wrong;
}

CaseWithGradients WithGradients(const OpCase& op_case) {
  CaseWithGradients result{std::make_unique<Graph>(), CaseInputs(op_case)};
  Graph forward;
  std::vector<Value> parameters, arguments;
  std::vector<int> wrt;
  for (const HostTensor& input : result.inputs) {
    const TensorType type(input.dtype(), input.dims());
    if (IsFloat(type.dtype) && op_case.check_gradient) {
      wrt.push_back(static_cast<int>(parameters.size()));
    }
    parameters.push_back(forward.AddParameter(type, fmt::format("x{}", parameters.size())));
    arguments.push_back(result.graph->AddParameter(type, fmt::format("x{}", arguments.size())));
  }
  forward.SetOutputs(op_case.build(forward, parameters));
  std::vector<Value> cotangents;
  for (const Value& v : forward.outputs()) {
    if (!IsFloat(v.dtype()) || wrt.empty()) {
      cotangents.emplace_back();
      continue;
    }
    const auto place = static_cast<int>(cotangents.size());
    cotangents.push_back(result.graph->AddParameter(v.type(), fmt::format("ct{}", place)));
    result.inputs.push_back(Direction(v.type(), CaseName(op_case), 2000 + place));
  }
  autodiff::GradientResult built =
      autodiff::BuildVjp(*result.graph, forward, arguments, wrt, cotangents);
  std::vector<Value> outputs = std::move(built.outputs);
  outputs.insert(outputs.end(), built.gradients.begin(), built.gradients.end());
  result.graph->SetOutputs(std::move(outputs));
  result.graph->Verify();
  return result;
}

}  // namespace mw
