#include "meshwright/runtime/pjrt_api.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/cord.h"
#include "meshwright/base/check.h"
#include "meshwright/runtime/status_detail.h"

namespace mw::runtime {
namespace {

constexpr char kDetailUrl[] = "meshwright/plugin-message";

// Parser diagnostics start with a generic line and say what is wrong in the next.
std::string FirstSentence(std::string_view text) {
  std::string sentence;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!sentence.empty()) sentence += ' ';
    sentence += line;
    if (line.back() != ':') break;
  }
  return sentence.empty() ? "the plugin gave no message" : sentence;
}

}  // namespace

absl::Status StatusFromNonNullError(const PJRT_Api* api, PJRT_Error* error) {
  MW_PJRT_ARGS(PJRT_Error_Message_Args, message);
  message.error = error;
  api->PJRT_Error_Message(&message);
  const std::string text(message.message, message.message_size);

  MW_PJRT_ARGS(PJRT_Error_GetCode_Args, code);
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  PJRT_Error* nested = api->PJRT_Error_GetCode(&code);
  for (PJRT_Error* e : {nested, error}) {
    if (e == nullptr) continue;
    MW_PJRT_ARGS(PJRT_Error_Destroy_Args, destroy);
    destroy.error = e;
    api->PJRT_Error_Destroy(&destroy);
  }
  // An error whose code says OK would be lost as a Status.
  if (code.code == PJRT_Error_Code_OK) code.code = PJRT_Error_Code_UNKNOWN;

  const std::string sentence = FirstSentence(text);
  absl::Status status(static_cast<absl::StatusCode>(code.code), sentence);
  if (sentence != text) status.SetPayload(kDetailUrl, absl::Cord(text));
  return status;
}

std::string StatusDetail(const absl::Status& status) {
  auto payload = status.GetPayload(kDetailUrl);
  return payload ? std::string(*payload) : "";
}

absl::Status MissingFunction(const PJRT_Api* api, const char* function) {
  return absl::UnimplementedError(fmt::format("the plugin (PJRT API {}.{}) has no {}",
                                              api->pjrt_api_version.major_version,
                                              api->pjrt_api_version.minor_version, function));
}

absl::Status Annotate(absl::Status status, std::string_view context) {
  if (status.ok()) return status;
  const std::string message = fmt::format(
      "{}: {}", context, std::string_view(status.message().data(), status.message().size()));
  absl::Status annotated(status.code(), message);
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

absl::Status CompilationError(absl::Status status, std::string_view context) {
  const std::string_view message(status.message().data(), status.message().size());
  // "-" is the name the parser gives to text that comes from no file.
  const bool is_diagnostic = message.starts_with("-:") || message.starts_with("loc(");
  if (status.code() != absl::StatusCode::kUnknown || !is_diagnostic) {
    return Annotate(std::move(status), context);
  }
  absl::Status invalid = absl::InvalidArgumentError(status.message());
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { invalid.SetPayload(url, payload); });
  return Annotate(std::move(invalid), context);
}

absl::StatusOr<DType> FromPjrtType(PJRT_Buffer_Type type) {
  switch (type) {
    case PJRT_Buffer_Type_PRED:
      return DType::kPred;
    case PJRT_Buffer_Type_S8:
      return DType::kS8;
    case PJRT_Buffer_Type_S32:
      return DType::kS32;
    case PJRT_Buffer_Type_S64:
      return DType::kS64;
    case PJRT_Buffer_Type_U8:
      return DType::kU8;
    case PJRT_Buffer_Type_U32:
      return DType::kU32;
    case PJRT_Buffer_Type_U64:
      return DType::kU64;
    case PJRT_Buffer_Type_F16:
      return DType::kF16;
    case PJRT_Buffer_Type_BF16:
      return DType::kBF16;
    case PJRT_Buffer_Type_F32:
      return DType::kF32;
    case PJRT_Buffer_Type_F64:
      return DType::kF64;
    default:
      return absl::UnimplementedError(fmt::format(
          "PJRT element type {} has no DType; known are pred, s8, s32, s64, u8, u32, u64, f16, "
          "bf16, f32, f64",
          static_cast<int>(type)));
  }
}

PJRT_Buffer_Type ToPjrtType(DType dtype) {
  switch (dtype) {
    case DType::kPred:
      return PJRT_Buffer_Type_PRED;
    case DType::kS8:
      return PJRT_Buffer_Type_S8;
    case DType::kS32:
      return PJRT_Buffer_Type_S32;
    case DType::kS64:
      return PJRT_Buffer_Type_S64;
    case DType::kU8:
      return PJRT_Buffer_Type_U8;
    case DType::kU32:
      return PJRT_Buffer_Type_U32;
    case DType::kU64:
      return PJRT_Buffer_Type_U64;
    case DType::kF16:
      return PJRT_Buffer_Type_F16;
    case DType::kBF16:
      return PJRT_Buffer_Type_BF16;
    case DType::kF32:
      return PJRT_Buffer_Type_F32;
    case DType::kF64:
      return PJRT_Buffer_Type_F64;
  }
  MW_CHECK(false);
  return PJRT_Buffer_Type_INVALID;
}

std::vector<PJRT_NamedValue> ToPjrtNamedValues(const NamedValues& values) {
  std::vector<PJRT_NamedValue> out;
  out.reserve(values.size());
  for (const auto& [name, value] : values) {
    MW_PJRT_ARGS(PJRT_NamedValue, v);
    v.name = name.data();
    v.name_size = name.size();
    v.value_size = 1;
    if (const auto* s = std::get_if<std::string>(&value)) {
      v.type = PJRT_NamedValue_kString;
      v.string_value = s->data();
      v.value_size = s->size();
    } else if (const auto* b = std::get_if<bool>(&value)) {
      v.type = PJRT_NamedValue_kBool;
      v.bool_value = *b;
    } else if (const auto* i = std::get_if<int64_t>(&value)) {
      v.type = PJRT_NamedValue_kInt64;
      v.int64_value = *i;
    } else if (const auto* f = std::get_if<float>(&value)) {
      v.type = PJRT_NamedValue_kFloat;
      v.float_value = *f;
    } else {
      const auto& list = std::get<std::vector<int64_t>>(value);
      v.type = PJRT_NamedValue_kInt64List;
      v.int64_array_value = list.data();
      v.value_size = list.size();
    }
    out.push_back(v);
  }
  return out;
}

NamedValues FromPjrtNamedValues(const PJRT_NamedValue* values, size_t num_values) {
  NamedValues out;
  for (size_t i = 0; i < num_values; ++i) {
    const PJRT_NamedValue& v = values[i];
    NamedValue value;
    switch (v.type) {
      case PJRT_NamedValue_kString:
        value = std::string(v.string_value, v.value_size);
        break;
      case PJRT_NamedValue_kInt64:
        value = v.int64_value;
        break;
      case PJRT_NamedValue_kInt64List:
        value = std::vector<int64_t>(v.int64_array_value, v.int64_array_value + v.value_size);
        break;
      case PJRT_NamedValue_kFloat:
        value = v.float_value;
        break;
      case PJRT_NamedValue_kBool:
        value = v.bool_value;
        break;
      default:  // a type newer than our header
        continue;
    }
    out.emplace(std::string(v.name, v.name_size), std::move(value));
  }
  return out;
}

PJRT_Program StableHloProgram(std::string_view text) {
  static constexpr std::string_view kFormat = "mlir";
  MW_PJRT_ARGS(PJRT_Program, program);
  // The C struct serves input and output; the plugin does not write to an input.
  program.code = const_cast<char*>(text.data());
  program.code_size = text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

}  // namespace mw::runtime
