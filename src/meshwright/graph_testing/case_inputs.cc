#include "meshwright/graph_testing/case_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <variant>

#include "meshwright/base/bfloat16.h"
#include "meshwright/core/philox.h"

namespace mw {
namespace {

using nlohmann::json;

// Calls `f` with a value of the C++ type that holds one element of `dtype`; 16-bit
// floats do not come here.
template <typename F>
void WithElementType(DType dtype, F f) {
  switch (dtype) {
    case DType::kPred:
    case DType::kU8:
      return f(uint8_t{});
    case DType::kS8:
      return f(int8_t{});
    case DType::kS32:
      return f(int32_t{});
    case DType::kS64:
      return f(int64_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kU64:
      return f(uint64_t{});
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    default:
      MW_CHECK(false);
  }
}

bool IsHalf(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

json NumberToJson(double value, DType dtype) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (!IsFloat(dtype)) {
    if (IsUnsigned(dtype)) return static_cast<uint64_t>(value);
    return static_cast<int64_t>(value);
  }
  return value;
}

double NumberFromJson(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "nan") return std::nan("");
  return text == "inf" ? INFINITY : -INFINITY;
}

json TypeToJson(const TensorType& type) {
  return {{"dtype", std::string(DTypeName(type.dtype))}, {"dims", type.dims}};
}

json ValuesToJson(const std::vector<graph::Value>& values) {
  json list = json::array();
  for (const graph::Value& v : values) list.push_back({v.node->id(), v.index});
  return list;
}

json AttributeToJson(const graph::Attribute& attribute) {
  return std::visit(
      [](const auto& value) -> json {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, DType>) {
          return std::string(DTypeName(value));
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          json list = json::array();
          for (double v : value) list.push_back(NumberToJson(v, DType::kF64));
          return list;
        } else {
          return value;
        }
      },
      attribute);
}

}  // namespace

std::string CaseName(const OpCase& op_case) {
  return op_case.name.empty() ? op_case.op : op_case.op + "/" + op_case.name;
}

std::vector<double> ToDoubles(const HostTensor& tensor) {
  if (IsHalf(tensor.dtype())) return ToDoubles(tensor.ConvertTo(DType::kF32));
  std::vector<double> values;
  WithElementType(tensor.dtype(), [&](auto zero) {
    for (auto v : tensor.as<decltype(zero)>()) values.push_back(static_cast<double>(v));
  });
  return values;
}

HostTensor FromDoubles(DType dtype, Dims dims, const std::vector<double>& values) {
  if (IsHalf(dtype)) return FromDoubles(DType::kF32, std::move(dims), values).ConvertTo(dtype);
  HostTensor tensor = HostTensor::Empty(dtype, std::move(dims));
  MW_CHECK(tensor.num_elements() == static_cast<int64_t>(values.size()));
  WithElementType(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto out = tensor.mutable_as<T>();
    for (size_t i = 0; i < values.size(); ++i) {
      out[i] = dtype == DType::kPred ? static_cast<T>(values[i] != 0) : static_cast<T>(values[i]);
    }
  });
  return tensor;
}

HostTensor RandomTensor(const TensorType& type, double low, double high, const std::string& key,
                        int index) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (char c : key) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  std::vector<uint32_t> bits(static_cast<size_t>(type.num_elements()));
  PhiloxRow({static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)},
            {.row = static_cast<uint32_t>(index)}, bits);
  std::vector<double> values;
  for (uint32_t b : bits) {
    const double u = static_cast<double>(b) * 0x1p-32;
    if (type.dtype == DType::kPred) {
      values.push_back(b & 1);
    } else if (IsFloat(type.dtype)) {
      values.push_back(low + std::floor(u * (high - low) * 4096) / 4096);
    } else {
      values.push_back(std::ceil(low) + std::floor(u * (std::floor(high) - std::ceil(low) + 1)));
    }
  }
  return FromDoubles(type.dtype, type.dims, values);
}

std::vector<HostTensor> CaseInputs(const OpCase& op_case) {
  std::vector<HostTensor> inputs;
  for (const TensorType& type : op_case.inputs) {
    double low = op_case.low;
    if (IsUnsigned(type.dtype)) low = std::max(low, 0.0);
    inputs.push_back(
        RandomTensor(type, low, op_case.high, CaseName(op_case), static_cast<int>(inputs.size())));
  }
  return inputs;
}

json TensorToJson(const HostTensor& tensor) {
  json values = json::array();
  for (double v : ToDoubles(tensor)) values.push_back(NumberToJson(v, tensor.dtype()));
  return {{"dtype", std::string(DTypeName(tensor.dtype()))},
          {"dims", tensor.dims()},
          {"values", std::move(values)}};
}

HostTensor TensorFromJson(const json& json_tensor) {
  const auto dtype = ParseDType(json_tensor.at("dtype").get<std::string>());
  MW_CHECK(dtype.has_value());
  std::vector<double> values;
  for (const json& v : json_tensor.at("values")) values.push_back(NumberFromJson(v));
  return FromDoubles(*dtype, json_tensor.at("dims").get<Dims>(), values);
}

json GraphToJson(const graph::Graph& graph) {
  json parameters = json::array();
  for (const graph::Value& p : graph.parameters()) parameters.push_back(p.node->id());
  json nodes = json::array();
  for (const auto& node : graph.nodes()) {
    if (node->is_parameter()) continue;
    json attrs = json::object();
    for (const auto& [name, attribute] : node->attrs().items()) {
      attrs[name] = AttributeToJson(attribute);
    }
    json types = json::array();
    for (const TensorType& type : node->types()) types.push_back(TypeToJson(type));
    json regions = json::array();
    for (const auto& region : node->regions()) regions.push_back(GraphToJson(*region));
    nodes.push_back({{"id", node->id()},
                     {"op", std::string(node->op_name())},
                     {"operands", ValuesToJson(node->operands())},
                     {"attrs", std::move(attrs)},
                     {"types", std::move(types)},
                     {"regions", std::move(regions)}});
  }
  return {{"parameters", std::move(parameters)},
          {"nodes", std::move(nodes)},
          {"outputs", ValuesToJson(graph.outputs())}};
}

std::string Differences(const HostTensor& actual, const HostTensor& expected, double slack) {
  if (actual.dtype() != expected.dtype() || actual.dims() != expected.dims()) {
    return fmt::format("{} instead of {}", TensorType(actual.dtype(), actual.dims()).ToString(),
                       TensorType(expected.dtype(), expected.dims()).ToString());
  }
  const std::vector<double> a = ToDoubles(actual);
  const std::vector<double> e = ToDoubles(expected);
  double magnitude = 1;
  for (double v : e) magnitude = std::isfinite(v) ? std::max(magnitude, std::abs(v)) : magnitude;
  // Both sides round in their own order: a few units of the last place for the
  // elementary functions and the short sums of the cases. bf16 programs may or may
  // not round between fused ops, which is worth one more unit.
  double bound = 0;
  if (actual.dtype() == DType::kF64) bound = 16 * std::numeric_limits<double>::epsilon();
  if (actual.dtype() == DType::kF32) bound = 16 * std::numeric_limits<float>::epsilon();
  if (actual.dtype() == DType::kBF16) bound = 0x1p-7;
  if (actual.dtype() == DType::kF16) bound = 0x1p-10;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(e[i]) ? std::isnan(a[i])
                         : (a[i] == e[i] || std::abs(a[i] - e[i]) <= slack * bound * magnitude)) {
      continue;
    }
    return fmt::format("element {} is {} instead of {} (allowed {})", i, a[i], e[i],
                       slack * bound * magnitude);
  }
  return "";
}

}  // namespace mw
