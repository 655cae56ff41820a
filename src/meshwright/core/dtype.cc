#include "meshwright/core/dtype.h"

#include "meshwright/base/check.h"

namespace mw {

size_t ByteSize(DType dtype) {
  switch (dtype) {
    case DType::kPred:
    case DType::kS8:
    case DType::kU8:
      return 1;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kS32:
    case DType::kU32:
    case DType::kF32:
      return 4;
    case DType::kS64:
    case DType::kU64:
    case DType::kF64:
      return 8;
  }
  MW_CHECK_MSG(false, "unknown dtype");
  return 0;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kPred:
      return "pred";
    case DType::kS8:
      return "s8";
    case DType::kS32:
      return "s32";
    case DType::kS64:
      return "s64";
    case DType::kU8:
      return "u8";
    case DType::kU32:
      return "u32";
    case DType::kU64:
      return "u64";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
  }
  MW_CHECK_MSG(false, "unknown dtype");
  return "";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i) {
    const DType dtype = static_cast<DType>(i);
    if (name == DTypeName(dtype)) return dtype;
  }
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  if (name == "float64") return DType::kF64;
  if (name == "int32") return DType::kS32;
  if (name == "int64") return DType::kS64;
  return std::nullopt;
}

}  // namespace mw
