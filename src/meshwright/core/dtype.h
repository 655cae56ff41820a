// Element types of tensors.
#ifndef MESHWRIGHT_CORE_DTYPE_H_
#define MESHWRIGHT_CORE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mw {

enum class DType : uint8_t { kPred, kS8, kS32, kS64, kU8, kU32, kU64, kF16, kBF16, kF32, kF64 };

// Bytes of one element in memory (kPred takes 1).
size_t ByteSize(DType dtype);

// Short lower-case name as StableHLO and safetensors users know it: "f32",
// "bf16", "s32", "pred".
std::string_view DTypeName(DType dtype);

// The inverse of DTypeName; also takes "float32", "bfloat16", "float16", "int32".
std::optional<DType> ParseDType(std::string_view name);

inline bool IsFloat(DType d) {
  return d == DType::kF16 || d == DType::kBF16 || d == DType::kF32 || d == DType::kF64;
}
inline bool IsUnsigned(DType d) { return d == DType::kU8 || d == DType::kU32 || d == DType::kU64; }
inline bool IsSigned(DType d) { return d == DType::kS8 || d == DType::kS32 || d == DType::kS64; }
inline bool IsInteger(DType d) { return IsSigned(d) || IsUnsigned(d); }

}  // namespace mw

#endif  // MESHWRIGHT_CORE_DTYPE_H_
