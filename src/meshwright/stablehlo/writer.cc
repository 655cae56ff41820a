#include "meshwright/stablehlo/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>

#include "meshwright/base/bfloat16.h"
#include "meshwright/base/check.h"

namespace mw::stablehlo {
namespace {

// "[dense<[1, 0]> : tensor<2xindex>, …]". Without layouts the compiler may choose others than
// row-major.
std::string Layouts(const std::vector<TensorType>& types,
                    const std::vector<std::vector<int64_t>>& orders) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < types.size(); ++i) {
    std::vector<int64_t> order = i < orders.size() ? orders[i] : std::vector<int64_t>();
    if (order.empty()) {
      for (int64_t d = types[i].rank() - 1; d >= 0; --d) order.push_back(d);
    }
    parts.push_back(fmt::format("dense<{}> : tensor<{}xindex>", order.empty() ? "" : IntList(order),
                                order.size()));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace

std::string_view ElementTypeText(DType dtype) {
  switch (dtype) {
    case DType::kPred:
      return "i1";
    case DType::kS8:
      return "i8";
    case DType::kS32:
      return "i32";
    case DType::kS64:
      return "i64";
    case DType::kU8:
      return "ui8";
    case DType::kU32:
      return "ui32";
    case DType::kU64:
      return "ui64";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
  }
  MW_CHECK(false);
  return "";
}

std::string TypeText(DType dtype, const Dims& dims) {
  std::string text = "tensor<";
  for (int64_t d : dims) text += fmt::format("{}x", d);
  text += ElementTypeText(dtype);
  return text + ">";
}

std::string TypeText(const TensorType& type) { return TypeText(type.dtype, type.dims); }

std::string TypeList(const std::vector<TensorType>& types) {
  std::vector<std::string> parts;
  parts.reserve(types.size());
  for (const TensorType& t : types) parts.push_back(TypeText(t));
  return fmt::format("({})", fmt::join(parts, ", "));
}

std::string I64Array(const std::vector<int64_t>& values) {
  if (values.empty()) return "array<i64>";
  return fmt::format("array<i64: {}>", fmt::join(values, ", "));
}

std::string IntList(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

std::string StringLiteral(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\' || c < 0x20 || c == 0x7f || static_cast<unsigned char>(c) >= 0x80) {
      out += fmt::format("\\{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string ScalarLiteral(DType dtype, double value) {
  if (dtype == DType::kPred) return value != 0 ? "true" : "false";
  if (!IsFloat(dtype)) {
    if (dtype == DType::kU64) return fmt::format("{}", static_cast<uint64_t>(value));
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  if (std::isfinite(value) && std::abs(value) < 1e6 && value == std::floor(value) &&
      !(value == 0 && std::signbit(value))) {
    return fmt::format("{:.1f}", value);
  }
  switch (dtype) {
    case DType::kF64:
      return fmt::format("0x{:016X}", std::bit_cast<uint64_t>(value));
    case DType::kF32:
      return fmt::format("0x{:08X}", std::bit_cast<uint32_t>(static_cast<float>(value)));
    case DType::kBF16:
      return fmt::format("0x{:04X}", FloatToBFloat16(static_cast<float>(value)));
    default:
      return fmt::format("0x{:04X}", FloatToFloat16(static_cast<float>(value)));
  }
}

std::string Writer::NewName() { return fmt::format("%{}", next_name_++); }

void Writer::OpenLine(std::string_view text) {
  text_.append(static_cast<size_t>(indent_), ' ');
  text_.append(text);
  text_.push_back('\n');
}

void Writer::Line(std::string_view text) {
  text_.append(static_cast<size_t>(indent_), ' ');
  text_.append(text);
  // An op ends here that begins here or began before its regions.
  if (!location_.empty() && (text.starts_with('%') || text.starts_with('}')) &&
      !text.ends_with('{')) {
    text_.append(fmt::format(" loc(\"{}\")", location_));
  }
  text_.push_back('\n');
}

std::string Writer::Assign(std::string_view text) {
  std::string name = NewName();
  Line(fmt::format("{} = {}", name, text));
  return name;
}

std::string Writer::Splat(DType dtype, const Dims& dims, double value) {
  return Assign(fmt::format("stablehlo.constant dense<{}> : {}", ScalarLiteral(dtype, value),
                            TypeText(dtype, dims)));
}

std::vector<std::string> CustomCall(Writer* writer, const CustomCallText& call) {
  const bool single = call.result_types.size() == 1;
  std::vector<std::string> aliases;
  for (size_t i = 0; i < call.aliases.size(); ++i) {
    if (call.aliases[i] < 0) continue;
    aliases.push_back(fmt::format(
        "#stablehlo.output_operand_alias<output_tuple_indices = [{}], operand_index = {}, "
        "operand_tuple_indices = []>",
        single ? "" : fmt::format("{}", i), call.aliases[i]));
  }
  const std::string aliased =
      aliases.empty() ? ""
                      : fmt::format(", output_operand_aliases = [{}]", fmt::join(aliases, ", "));
  const std::string name = writer->NewName();
  writer->Line(fmt::format(
      "{}{} = \"stablehlo.custom_call\"({}) <{{{}{}, call_target_name = {}, has_side_effect = "
      "false, operand_layouts = {}, result_layouts = {}}}> : {} -> {}",
      name, single ? "" : fmt::format(":{}", call.result_types.size()),
      fmt::join(call.operands, ", "), call.attributes, aliased, StringLiteral(call.target),
      Layouts(call.operand_types, call.operand_orders),
      Layouts(call.result_types, call.result_orders), TypeList(call.operand_types),
      single ? TypeText(call.result_types[0]) : TypeList(call.result_types)));
  if (single) return {name};
  std::vector<std::string> results;
  for (size_t i = 0; i < call.result_types.size(); ++i) {
    results.push_back(fmt::format("{}#{}", name, i));
  }
  return results;
}

}  // namespace mw::stablehlo
