// ggml's tensor types and their dequantization.
#ifndef MESHWRIGHT_IO_GGML_QUANTS_H_
#define MESHWRIGHT_IO_GGML_QUANTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "meshwright/core/dtype.h"

namespace mw::io {

// How a ggml type stores its elements: rows of blocks.
struct GgmlType {
  uint32_t id;
  std::string_view name;  // "Q4_K"
  int64_t block_elements;
  int64_t block_bytes;
  DType dtype;  // after reading: itself for plain types, f32 for quantized ones
  // Writes block_elements floats; null for plain types.
  void (*dequantize_block)(const std::byte* block, float* out);
};

// Nullptr for a type that cannot be read here.
const GgmlType* FindGgmlType(uint32_t id);
const GgmlType* FindGgmlType(std::string_view name);

// The plain type that stores `dtype`; nullptr where ggml has none.
const GgmlType* GgmlTypeOf(DType dtype);

// ggml's name of a type number, also of those that cannot be read; "type 99" otherwise unknown.
std::string GgmlTypeName(uint32_t id);

// "F32, F16, …": for messages.
std::string ReadableGgmlTypes();

// Dequantizes whole blocks, bit for bit as gguf-py's `gguf.quants.dequantize` (no fused
// multiply-add). REQUIRES: `blocks.size()` is a multiple of the block's bytes, `out` has the
// elements. Source: ggml-quants.c, dequantize_row_*; gguf-py/gguf/quants.py.
void Dequantize(const GgmlType& type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_GGML_QUANTS_H_
