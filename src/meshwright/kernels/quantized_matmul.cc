// meshwright.quantized_matmul: the product of rows with a matrix of int8 in blocks with scales.
// ops/quantized_dot.h says what it computes.
//
// Of few rows it is reading the matrix that takes time: it is widened in registers. Of more, parts
// of it are widened in memory for oneDNN.
#include <algorithm>

#include "meshwright/kernels/few_rows.h"
#include "meshwright/kernels/gemm.h"
#include "meshwright/kernels/handler_util.h"
#include "meshwright/kernels/handlers.h"
#include "meshwright/kernels/parallel_for.h"
#include "meshwright/kernels/scratch.h"
#include "xla/ffi/api/ffi.h"

namespace mw::kernels {
namespace {

namespace ffi = xla::ffi;

// Microseconds that one core takes, roughly: at 100 GFLOP/s, and widening 12 numbers a nanosecond.
double TimeOf(const GemmShape& s) {
  const double numbers = static_cast<double>(s.n) * static_cast<double>(s.k);
  return std::max(2 * static_cast<double>(s.m) * numbers / 1e5, numbers / 1.2e4);
}

void MultiplyFewRows(ffi::ThreadPool& pool, const GemmShape& shape, const void* x,
                     const int8_t* data, const float* scales, char* out, int64_t out_bytes) {
  const PackedRows rows(shape, x, &pool);
  const int64_t columns = FewRowsTaskColumns(shape, TimeOf(shape));
  ParallelFor(pool, (shape.n + columns - 1) / columns, [&](int64_t task) {
    GemmShape part = shape;
    const int64_t first = task * columns;
    part.n = std::min(columns, shape.n - first);
    FewRowsQuantized(part, rows, data + first * shape.k, scales + first * shape.k / kQuantizedBlock,
                     pool.num_threads() * columns, out + first * out_bytes);
  });
}

void MultiplyManyRows(ffi::ThreadPool& pool, const GemmShape& shape, const void* x,
                      const int8_t* data, const float* scales, char* out, int64_t out_bytes) {
  // Parts of the matrix that a core's cache holds.
  constexpr int64_t kPart = 1 << 17, kEdge = 64;
  const int64_t columns = std::max<int64_t>(1, kPart / shape.k / kEdge) * kEdge;
  const bool bf16 = shape.in == DType::kBF16;
  ParallelFor(pool, (shape.n + columns - 1) / columns, [&](int64_t task) {
    thread_local Aligned<float> scratch;
    GemmShape part = shape;
    const int64_t first = task * columns;
    part.n = std::min(columns, shape.n - first);
    float* const wide = scratch.Get(part.n * shape.k);
    Dequantize(data + first * shape.k, scales + first * shape.k / kQuantizedBlock, part.n * shape.k,
               wide, bf16);
    Gemm(part, x, wide, out + first * out_bytes);
  });
}

ffi::Error QuantizedMatmul(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::Buffer<ffi::S8> data,
                           ffi::Buffer<ffi::F32> scales, ffi::Result<ffi::AnyBuffer> out) {
  const auto w = data.dimensions();
  const bool fit = IsKnown(x.element_type()) && IsKnown(out->element_type()) &&
                   (out->element_type() == ffi::F32 || out->element_type() == x.element_type()) &&
                   w.size() == 2 && w[0] > 0 && w[1] > 0 && w[1] % kQuantizedBlock == 0 &&
                   static_cast<int64_t>(scales.element_count()) == w[0] * w[1] / kQuantizedBlock &&
                   x.dimensions().size() > 0 && x.dimensions().back() == w[1] &&
                   static_cast<int64_t>(out->element_count()) * w[1] ==
                       static_cast<int64_t>(x.element_count()) * w[0];
  if (!fit) {
    return ffi::Error::InvalidArgument("meshwright.quantized_matmul: operands do not fit");
  }
  const int64_t rows = static_cast<int64_t>(x.element_count()) / w[1];
  const GemmShape shape{.m = rows,
                        .n = w[0],
                        .k = w[1],
                        .lhs_m = w[1],
                        .lhs_k = 1,
                        .rhs_k = 1,
                        .rhs_n = w[1],
                        .out_m = w[0],
                        .in = DTypeOf(x.element_type()),
                        .out = DTypeOf(out->element_type())};
  return Guarded("meshwright.quantized_matmul", [&] {
    if (rows == 0) return;
    // bf16 rows are widened once for few, so that it is float32's limit that counts.
    (rows <= kFewRows ? MultiplyFewRows : MultiplyManyRows)(
        pool, shape, x.untyped_data(), data.typed_data(), scales.typed_data(),
        static_cast<char*>(out->untyped_data()), shape.out == DType::kBF16 ? 2 : 4);
  });
}

XLA_FFI_DEFINE_HANDLER(kQuantizedMatmul, QuantizedMatmul,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::Buffer<ffi::S8>>()
                           .Arg<ffi::Buffer<ffi::F32>>()
                           .Ret<ffi::AnyBuffer>());

}  // namespace

XLA_FFI_Error* QuantizedMatmulHandler(XLA_FFI_CallFrame* frame) { return kQuantizedMatmul(frame); }

}  // namespace mw::kernels
