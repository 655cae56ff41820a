#include "meshwright/io/ggml_quants.h"

#include <fmt/format.h>

#include <cstring>

#include "meshwright/base/bfloat16.h"
#include "meshwright/base/check.h"

namespace mw::io {
namespace {

uint8_t Byte(const std::byte* p) { return std::to_integer<uint8_t>(*p); }

float Half(const std::byte* p) {
  return Float16ToFloat(static_cast<uint16_t>(Byte(p) | Byte(p + 1) << 8));
}

// Every product and sum below is rounded on its own, as in the reference. GCC keeps that under
// -std=c++20; clang's default contracts only within one expression, hence the named products.

// d * q, or d * q + m: 32 elements, low nibbles first; `high` holds a fifth bit per element.
template <bool kHasMin, bool kHasHighBit, int kZero>
void DequantizeNibbles(const std::byte* block, float* out) {
  const float d = Half(block);
  const std::byte* p = block + 2;
  float m = 0;
  if constexpr (kHasMin) {
    m = Half(p);
    p += 2;
  }
  uint32_t high = 0;
  if constexpr (kHasHighBit) {
    for (int i = 3; i >= 0; --i) high = high << 8 | Byte(p + i);
    p += 4;
  }
  for (int i = 0; i < 32; ++i) {
    int q = i < 16 ? Byte(p + i) & 15 : Byte(p + i - 16) >> 4;
    if constexpr (kHasHighBit) q |= static_cast<int>(high >> i & 1) << 4;
    const float scaled = d * static_cast<float>(q - kZero);
    out[i] = kHasMin ? scaled + m : scaled;
  }
}

void DequantizeQ8_0(const std::byte* block, float* out) {
  const float d = Half(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(Byte(block + 2 + i))) * d;
  }
}

// Q2_K: scales[16] (low nibble scale, high nibble min), qs[64], d, dmin.
void DequantizeQ2K(const std::byte* block, float* out) {
  const std::byte* scales = block;
  const std::byte* qs = block + 16;
  const float d = Half(block + 80), dmin = Half(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;  // of 16 elements with one scale
    const float scale = d * static_cast<float>(Byte(scales + group) & 15);
    const float min = dmin * static_cast<float>(Byte(scales + group) >> 4);
    const int q = Byte(qs + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    const float scaled = scale * static_cast<float>(q);
    out[i] = scaled - min;
  }
}

// Q3_K: hmask[32], qs[64], scales[12] (16 of 6 bits), d.
void DequantizeQ3K(const std::byte* block, float* out) {
  const std::byte* hmask = block;
  const std::byte* qs = block + 32;
  const std::byte* scales = block + 96;
  const float d = Half(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const int low = group < 8 ? Byte(scales + group) & 15 : Byte(scales + group - 8) >> 4;
    const int high = Byte(scales + 8 + group % 4) >> (group / 4 * 2) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const int low_bits = Byte(qs + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    // A clear bit in the mask means minus 4.
    const int high_bit = Byte(hmask + i % 32) >> (i / 32) & 1;
    out[i] = scale * static_cast<float>(low_bits - (high_bit ? 0 : 4));
  }
}

// Eight 6-bit scales and mins in 12 bytes, shared by Q4_K and Q5_K.
struct ScaleMin {
  int scale;
  int min;
};

ScaleMin GetScaleMin(const std::byte* packed, int j) {
  if (j < 4) return {Byte(packed + j) & 63, Byte(packed + j + 4) & 63};
  return {(Byte(packed + j + 4) & 15) | (Byte(packed + j - 4) >> 6) << 4,
          Byte(packed + j + 4) >> 4 | (Byte(packed + j) >> 6) << 4};
}

// Q4_K: d, dmin, scales[12], qs[128]. Q5_K has qh[32] before qs.
template <bool kHasHighBit>
void DequantizeQ45K(const std::byte* block, float* out) {
  const float d = Half(block), dmin = Half(block + 2);
  const std::byte* scales = block + 4;
  const std::byte* qh = block + 16;
  const std::byte* qs = kHasHighBit ? qh + 32 : qh;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = GetScaleMin(scales, group);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = dmin * static_cast<float>(packed.min);
    for (int i = 0; i < 32; ++i) {
      int q = Byte(qs + group / 2 * 32 + i) >> (group % 2 * 4) & 15;
      if constexpr (kHasHighBit) q |= (Byte(qh + i) >> group & 1) << 4;
      const float scaled = scale * static_cast<float>(q);
      out[group * 32 + i] = scaled - min;
    }
  }
}

// Q6_K: ql[128], qh[64], scales[16] (signed), d.
void DequantizeQ6K(const std::byte* block, float* out) {
  const std::byte* ql = block;
  const std::byte* qh = block + 128;
  const std::byte* scales = block + 192;
  const float d = Half(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, in_half = i % 128;
    const int low = Byte(ql + half * 64 + in_half % 64) >> (in_half / 64 * 4) & 15;
    const int high = Byte(qh + half * 32 + in_half % 32) >> (in_half / 32 * 2) & 3;
    const float scale = d * static_cast<float>(static_cast<int8_t>(Byte(scales + i / 16)));
    out[i] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, DType::kF32, nullptr},
    {1, "F16", 1, 2, DType::kF16, nullptr},
    {2, "Q4_0", 32, 18, DType::kF32, DequantizeNibbles<false, false, 8>},
    {3, "Q4_1", 32, 20, DType::kF32, DequantizeNibbles<true, false, 0>},
    {6, "Q5_0", 32, 22, DType::kF32, DequantizeNibbles<false, true, 16>},
    {7, "Q5_1", 32, 24, DType::kF32, DequantizeNibbles<true, true, 0>},
    {8, "Q8_0", 32, 34, DType::kF32, DequantizeQ8_0},
    {10, "Q2_K", 256, 84, DType::kF32, DequantizeQ2K},
    {11, "Q3_K", 256, 110, DType::kF32, DequantizeQ3K},
    {12, "Q4_K", 256, 144, DType::kF32, DequantizeQ45K<false>},
    {13, "Q5_K", 256, 176, DType::kF32, DequantizeQ45K<true>},
    {14, "Q6_K", 256, 210, DType::kF32, DequantizeQ6K},
    {24, "I8", 1, 1, DType::kS8, nullptr},
    {26, "I32", 1, 4, DType::kS32, nullptr},
    {27, "I64", 1, 8, DType::kS64, nullptr},
    {28, "F64", 1, 8, DType::kF64, nullptr},
    {30, "BF16", 1, 2, DType::kBF16, nullptr},
};

struct UnreadableType {
  uint32_t id;
  std::string_view name;
};
constexpr UnreadableType kUnreadable[] = {
    {9, "Q8_1"},    {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {25, "I16"},     {29, "IQ1_M"},
    {34, "TQ1_0"},  {35, "TQ2_0"}, {39, "MXFP4"},   {40, "NVFP4"},
};

}  // namespace

const GgmlType* FindGgmlType(uint32_t id) {
  for (const GgmlType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

const GgmlType* FindGgmlType(std::string_view name) {
  for (const GgmlType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

const GgmlType* GgmlTypeOf(DType dtype) {
  for (const GgmlType& type : kTypes) {
    if (type.dequantize_block == nullptr && type.dtype == dtype) return &type;
  }
  return nullptr;
}

std::string GgmlTypeName(uint32_t id) {
  if (const GgmlType* type = FindGgmlType(id)) return std::string(type->name);
  for (const UnreadableType& type : kUnreadable) {
    if (type.id == id) return std::string(type.name);
  }
  return fmt::format("type {}", id);
}

std::string ReadableGgmlTypes() {
  std::string text;
  for (const GgmlType& type : kTypes) text += (text.empty() ? "" : ", ") + std::string(type.name);
  return text;
}

void Dequantize(const GgmlType& type, std::span<const std::byte> blocks, std::span<float> out) {
  MW_CHECK(type.dequantize_block != nullptr);
  const size_t block_bytes = static_cast<size_t>(type.block_bytes);
  const size_t block_elements = static_cast<size_t>(type.block_elements);
  const size_t num_blocks = blocks.size() / block_bytes;
  MW_CHECK(num_blocks * block_bytes == blocks.size());
  MW_CHECK(num_blocks * block_elements == out.size());
  for (size_t i = 0; i < num_blocks; ++i) {
    type.dequantize_block(blocks.data() + i * block_bytes, out.data() + i * block_elements);
  }
}

}  // namespace mw::io
