// Values of op cases: deterministic inputs and their text form.
#ifndef MESHWRIGHT_GRAPH_TESTING_CASE_INPUTS_H_
#define MESHWRIGHT_GRAPH_TESTING_CASE_INPUTS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "meshwright/core/host_tensor.h"
#include "meshwright/graph_testing/op_cases.h"

namespace mw {

// "op/name", or "op" when the case has no name.
std::string CaseName(const OpCase& op_case);

// The elements as numbers; integers beyond 2^53 lose bits.
std::vector<double> ToDoubles(const HostTensor& tensor);
// Rounds to `dtype`.
HostTensor FromDoubles(DType dtype, Dims dims, const std::vector<double>& values);

// A tensor of numbers uniform in [low, high] (whole for integers, a coin for
// pred), the same for the same `key` and `index` everywhere.
HostTensor RandomTensor(const TensorType& type, double low, double high, const std::string& key,
                        int index);

// The inputs of a case; float ones are multiples of 2^-12, so that every float
// type but the 16-bit ones holds them exactly.
std::vector<HostTensor> CaseInputs(const OpCase& op_case);

// {"dtype", "dims", "values"}; NaN and infinities are "nan", "inf", "-inf".
nlohmann::json TensorToJson(const HostTensor& tensor);
HostTensor TensorFromJson(const nlohmann::json& json);

// The graph as data for an interpreter in another language: {"parameters": [id],
// "nodes": [{"id", "op", "operands": [[id, result]], "attrs", "types", "regions"}],
// "outputs": [[id, result]]}.
nlohmann::json GraphToJson(const graph::Graph& graph);

}  // namespace mw

#endif  // MESHWRIGHT_GRAPH_TESTING_CASE_INPUTS_H_
