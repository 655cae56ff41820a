// OpCase: one way to call one op, for the tests that cover every registered op.
#ifndef MESHWRIGHT_GRAPH_TESTING_OP_CASES_H_
#define MESHWRIGHT_GRAPH_TESTING_OP_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "meshwright/core/tensor_type.h"
#include "meshwright/graph/graph.h"

namespace mw {

// A test builds the case on parameters of types `inputs`, fills them with random
// values and runs, lowers, partitions or differentiates the results.
struct OpCase {
  // The op's registered name, and what this case of it is about ("" when it is
  // the only one). "op/name" is unique.
  std::string op;
  std::string name;
  std::vector<TensorType> inputs;
  std::function<std::vector<graph::Value>(graph::Graph&, const std::vector<graph::Value>& inputs)>
      build;
  // Whether to compare the gradient by every float input with finite differences:
  // false where the op has none (integers, comparisons, steps).
  bool check_gradient = true;
  // Inputs are uniform in [low, high]: whole numbers for integers; pred inputs are
  // true or false at random whatever the range.
  double low = -1.0;
  double high = 1.0;
  // Builds the op on operands that its shape rule must refuse with a GraphError.
  // Empty when another case of the op has one, or when the op takes anything.
  std::function<void(graph::Graph&)> rejected = nullptr;
};

std::vector<OpCase> ElementwiseCases();
std::vector<OpCase> StructuralCases();
std::vector<OpCase> ReductionAndIndexingCases();
std::vector<OpCase> RegionCases();
std::vector<OpCase> AttentionCases();
std::vector<OpCase> UpdateCases();

// All of the above.
std::vector<OpCase> AllOpCases();

}  // namespace mw

#endif  // MESHWRIGHT_GRAPH_TESTING_OP_CASES_H_
