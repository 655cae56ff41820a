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

// Where the result of a case is not the expected one, or "". Floats may differ by
// `slack` times what another order of rounding is worth: 16 units of the last place of
// the largest element, at least 1, or 2^-7 and 2^-10 of it in bf16 and f16.
std::string Differences(const HostTensor& actual, const HostTensor& expected, double slack = 1);

// {"dtype", "dims", "values"}; NaN and infinities are "nan", "inf", "-inf".
nlohmann::json TensorToJson(const HostTensor& tensor);
HostTensor TensorFromJson(const nlohmann::json& json);

// The graph as data for an interpreter in another language: {"parameters": [id],
// "nodes": [{"id", "op", "operands": [[id, result]], "attrs", "types", "regions"}],
// "outputs": [[id, result]]}.
nlohmann::json GraphToJson(const graph::Graph& graph);

}  // namespace mw

#endif  // MESHWRIGHT_GRAPH_TESTING_CASE_INPUTS_H_
