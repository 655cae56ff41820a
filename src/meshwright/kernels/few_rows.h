// FewRows: the product of a few rows with a large matrix, as in generation.
#ifndef MESHWRIGHT_KERNELS_FEW_ROWS_H_
#define MESHWRIGHT_KERNELS_FEW_ROWS_H_

#include <cstdint>

#include "meshwright/kernels/gemm.h"

namespace mw::kernels {

// Up to so many rows it is memory that decides, and oneDNN takes longer than reading the matrix
// does (docs/kernels.md has the figures).
inline constexpr int64_t kFewRows = 16;

// Whether FewRows takes the product: both operands have their rows of k numbers dense.
bool IsOfFewRows(const GemmShape& shape);

// What Gemm computes, on the calling thread. REQUIRES: IsOfFewRows(shape).
void FewRows(const GemmShape& shape, const void* lhs, const void* rhs, void* out);

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_FEW_ROWS_H_
