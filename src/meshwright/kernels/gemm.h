// Gemm: a product of two matrices on one thread, by oneDNN.
#ifndef MESHWRIGHT_KERNELS_GEMM_H_
#define MESHWRIGHT_KERNELS_GEMM_H_

#include <compare>
#include <cstdint>

#include "meshwright/core/dtype.h"

namespace mw::kernels {

// out[i, j] = sum over l of lhs[i, l] * rhs[l, j]. Strides are in elements.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lhs_m = 0, lhs_k = 0;  // one of them 1
  int64_t rhs_k = 0, rhs_n = 0;  // one of them 1
  int64_t out_m = 0;             // columns of `out` lie together
  DType in = DType::kF32;        // f32 or bf16
  DType out = DType::kF32;       // f32, or bf16 where the operands are
  bool accumulate = false;       // adds to what is in `out`

  auto operator<=>(const GemmShape&) const = default;
};

// Computes it on the calling thread; sums are in float32. What is compiled for a shape is kept. On
// a CPU for which oneDNN has no products of bf16 (x86-64 without AVX-512) it is GemmInFloat32.
//
// The same shape gives the same bits, whichever thread computes it.
// Errors: throws dnnl::error where oneDNN cannot.
void Gemm(const GemmShape& shape, const void* lhs, const void* rhs, void* out);

// The same for operands of bf16, which it widens first. REQUIRES: shape.in is bf16, and a result
// that is added to is f32.
void GemmInFloat32(const GemmShape& shape, const void* lhs, const void* rhs, void* out);

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_GEMM_H_
