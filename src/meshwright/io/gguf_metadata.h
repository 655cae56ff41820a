// GGUF key-value metadata: every value type of the format, with typed getters.
#ifndef MESHWRIGHT_IO_GGUF_METADATA_H_
#define MESHWRIGHT_IO_GGUF_METADATA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace mw::io {

// The numbers are the format's.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u32", "string", "array", …
std::string_view GgufTypeName(GgufType type);

// One value: `type` says how it is stored, `data` holds it widened. Arrays hold one vector
// by the kind of their `element_type`; an array of arrays holds GgufValues of type kArray.
struct GgufValue {
  using Data = std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>,
                            std::vector<int64_t>, std::vector<double>, std::vector<bool>,
                            std::vector<std::string>, std::vector<GgufValue>>;

  GgufType type = GgufType::kU32;
  GgufType element_type = GgufType::kU8;  // of an array; kU8 for anything else
  Data data;

  static GgufValue U32(uint32_t v) { return {GgufType::kU32, {}, uint64_t{v}}; }
  static GgufValue I32(int32_t v) { return {GgufType::kI32, {}, int64_t{v}}; }
  static GgufValue U64(uint64_t v) { return {GgufType::kU64, {}, v}; }
  static GgufValue F32(float v) { return {GgufType::kF32, {}, double{v}}; }
  static GgufValue F64(double v) { return {GgufType::kF64, {}, v}; }
  static GgufValue Bool(bool v) { return {GgufType::kBool, {}, v}; }
  static GgufValue String(std::string v) { return {GgufType::kString, {}, std::move(v)}; }
  static GgufValue Strings(std::vector<std::string> v) {
    return {GgufType::kArray, GgufType::kString, std::move(v)};
  }
  static GgufValue I32s(std::vector<int64_t> v) {
    return {GgufType::kArray, GgufType::kI32, std::move(v)};
  }
  static GgufValue F32s(std::vector<double> v) {
    return {GgufType::kArray, GgufType::kF32, std::move(v)};
  }

  // Elements of an array; 1 for anything else.
  size_t size() const;

  friend bool operator==(const GgufValue&, const GgufValue&) = default;
};

// Ordered keys with their values. Getters return NotFound for an absent key and
// InvalidArgument for another type, naming the file and the key.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string path = "metadata") : path_(std::move(path)) {}

  // Adds, or replaces in place.
  void Set(std::string_view key, GgufValue value);

  const GgufValue* Find(std::string_view key) const;  // nullptr when absent
  bool Contains(std::string_view key) const { return Find(key) != nullptr; }

  absl::StatusOr<std::string> GetString(std::string_view key) const;
  absl::StatusOr<int64_t> GetInt(std::string_view key) const;   // any integer type
  absl::StatusOr<double> GetFloat(std::string_view key) const;  // any number type
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  absl::StatusOr<std::vector<std::string>> GetStrings(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetInts(std::string_view key) const;
  absl::StatusOr<std::vector<double>> GetFloats(std::string_view key) const;

  const std::vector<std::pair<std::string, GgufValue>>& entries() const { return entries_; }

 private:
  absl::StatusOr<const GgufValue*> Need(std::string_view key) const;
  absl::Status WrongType(std::string_view key, const GgufValue& value, std::string_view want) const;

  std::string path_;
  std::vector<std::pair<std::string, GgufValue>> entries_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_GGUF_METADATA_H_
