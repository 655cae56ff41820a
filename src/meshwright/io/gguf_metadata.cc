#include "meshwright/io/gguf_metadata.h"

#include <fmt/format.h>

#include <limits>

#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"

namespace mw::io {
namespace {

template <typename To, typename From>
std::vector<To> Widen(const std::vector<From>& values) {
  return std::vector<To>(values.begin(), values.end());
}

constexpr uint64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return "unknown type";
}

size_t GgufValue::size() const {
  return std::visit(
      [](const auto& value) -> size_t {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
          return 1;
        } else {
          return value.size();
        }
      },
      data);
}

void GgufMetadata::Set(std::string_view key, GgufValue value) {
  const auto [it, inserted] = index_.emplace(key, entries_.size());
  if (inserted) {
    entries_.emplace_back(key, std::move(value));
  } else {
    entries_[it->second].second = std::move(value);
  }
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

absl::StatusOr<const GgufValue*> GgufMetadata::Need(std::string_view key) const {
  if (const GgufValue* value = Find(key)) return value;
  if (entries_.empty()) {
    return absl::NotFoundError(fmt::format("{}: no metadata key \"{}\"; it has none", path_, key));
  }
  std::vector<std::string> keys;
  for (const auto& [known, value] : entries_) keys.push_back(known);
  return absl::NotFoundError(
      fmt::format("{}: no metadata key \"{}\"{}", path_, key, NearestNote(key, keys)));
}

absl::Status GgufMetadata::WrongType(std::string_view key, const GgufValue& value,
                                     std::string_view want) const {
  const std::string have = value.type == GgufType::kArray
                               ? fmt::format("an array of {}", GgufTypeName(value.element_type))
                               : std::string(GgufTypeName(value.type));
  return absl::InvalidArgumentError(
      fmt::format("{}: metadata key \"{}\" is {}, expected {}", path_, key, have, want));
}

absl::StatusOr<std::string> GgufMetadata::GetString(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const GgufValue* value, Need(key));
  if (const auto* text = std::get_if<std::string>(&value->data)) return *text;
  return WrongType(key, *value, "a string");
}

absl::StatusOr<int64_t> GgufMetadata::GetInt(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const GgufValue* value, Need(key));
  if (const auto* v = std::get_if<int64_t>(&value->data)) return *v;
  if (const auto* v = std::get_if<uint64_t>(&value->data); v != nullptr && *v <= kMaxInt64) {
    return static_cast<int64_t>(*v);
  }
  return WrongType(key, *value, "an integer below 2^63");
}

absl::StatusOr<double> GgufMetadata::GetFloat(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const GgufValue* value, Need(key));
  if (const auto* v = std::get_if<double>(&value->data)) return *v;
  if (const auto* v = std::get_if<int64_t>(&value->data)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<uint64_t>(&value->data)) return static_cast<double>(*v);
  return WrongType(key, *value, "a number");
}

absl::StatusOr<bool> GgufMetadata::GetBool(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const GgufValue* value, Need(key));
  if (const auto* v = std::get_if<bool>(&value->data)) return *v;
  return WrongType(key, *value, "a bool");
}

absl::StatusOr<std::vector<std::string>> GgufMetadata::GetStrings(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const GgufValue* value, Need(key));
  if (const auto* v = std::get_if<std::vector<std::string>>(&value->data)) return *v;
  return WrongType(key, *value, "an array of strings");
}

absl::StatusOr<std::vector<int64_t>> GgufMetadata::GetInts(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const GgufValue* value, Need(key));
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value->data)) return *v;
  if (const auto* v = std::get_if<std::vector<uint64_t>>(&value->data)) {
    for (const uint64_t element : *v) {
      if (element > kMaxInt64) return WrongType(key, *value, "integers below 2^63");
    }
    return Widen<int64_t>(*v);
  }
  return WrongType(key, *value, "an array of integers");
}

absl::StatusOr<std::vector<double>> GgufMetadata::GetFloats(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const GgufValue* value, Need(key));
  if (const auto* v = std::get_if<std::vector<double>>(&value->data)) return *v;
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value->data)) return Widen<double>(*v);
  if (const auto* v = std::get_if<std::vector<uint64_t>>(&value->data)) return Widen<double>(*v);
  return WrongType(key, *value, "an array of numbers");
}

}  // namespace mw::io
