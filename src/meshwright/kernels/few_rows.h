// FewRows: the product of a few rows with a large matrix, as in generation.
#ifndef MESHWRIGHT_KERNELS_FEW_ROWS_H_
#define MESHWRIGHT_KERNELS_FEW_ROWS_H_

#include <cstdint>

#include "meshwright/kernels/gemm.h"
#include "xla/ffi/api/ffi.h"

namespace mw::kernels {

// Up to so many rows oneDNN takes longer (docs/kernels.md has the figures): it brings the matrix
// into another order first. Of bf16 it is fewer, for which it has instructions that Highway lacks.
inline constexpr int64_t kFewRows = 64;
inline constexpr int64_t kFewRowsOfBFloat16 = 16;

// Whether FewRows takes the product: both operands have their rows of k numbers dense.
bool IsOfFewRows(const GemmShape& shape);

// So many rows are computed together, while there are.
inline constexpr int64_t kRowsTogether = 8;
// Results are computed so many columns together: parts of a product that begin at multiples of
// them have its bits.
inline constexpr int64_t kFewRowsColumns = 12;
// Columns that a core's cache holds for rows beyond kRowsTogether.
inline constexpr int64_t kFewRowsPanel = 2 * kFewRowsColumns;

// The rows of lhs in the order in which FewRows reads them, as float32. One of a thread at a time,
// whose memory is the thread's; threads may share it.
class PackedRows {
 public:
  // On the calling thread, or with those of `pool`. `lhs` must outlive it.
  // REQUIRES: IsOfFewRows(shape).
  PackedRows(const GemmShape& shape, const void* lhs, xla::ffi::ThreadPool* pool = nullptr);

  const void* lhs() const { return lhs_; }
  const float* packed() const { return packed_; }

 private:
  const void* lhs_;
  const float* packed_;
};

// What Gemm computes, on the calling thread, which probably goes on with the columns `next` behind
// the first of these. REQUIRES: `lhs` are all rows of a product of few rows, of which `shape` has
// all or some columns.
void FewRows(const GemmShape& shape, const PackedRows& lhs, const void* rhs, int64_t next,
             void* out);

// Microseconds that are worth a task.
inline constexpr double kFewRowsTask = 12;

// Columns of a task of a product that takes a core so long: small tasks, so that threads end at
// about the same time. Tasks begin where bits do not depend on it.
int64_t FewRowsTaskColumns(const GemmShape& shape, double microseconds);

// Numbers of a row of rhs that share a scale; see ops/quantized_dot.h.
inline constexpr int64_t kQuantizedBlock = 32;

// FewRows with columns of int8 in blocks with a scale each, shape.rhs_n numbers apart.
// REQUIRES: shape.k is a multiple of kQuantizedBlock.
void FewRowsQuantized(const GemmShape& shape, const PackedRows& lhs, const int8_t* data,
                      const float* scales, int64_t next, void* out);

// n numbers of int8 in blocks, as float32 or bf16. REQUIRES: n is a multiple of kQuantizedBlock.
void Dequantize(const int8_t* data, const float* scales, int64_t n, void* out, bool to_bf16);

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_FEW_ROWS_H_
