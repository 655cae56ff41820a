// meshwright.matmul: products of matrices by oneDNN, cut into tiles that threads share.
#include <algorithm>
#include <numeric>

#include "meshwright/kernels/few_rows.h"
#include "meshwright/kernels/gemm.h"
#include "meshwright/kernels/handler_util.h"
#include "meshwright/kernels/handlers.h"
#include "meshwright/kernels/parallel_for.h"
#include "xla/ffi/api/ffi.h"

namespace mw::kernels {
namespace {

namespace ffi = xla::ffi;
using Sizes = ffi::Span<const int64_t>;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The tiles of a product. They depend on its sizes and not on the threads there are, so that
// the same product has the same bits on any number of cores.
struct Tiles {
  int64_t m = 0, n = 0;           // of a tile
  int64_t rows = 0, columns = 0;  // of tiles in a matrix
  int64_t matrices_together = 1;  // small ones that one task computes
};

// What one core takes, roughly: products at 100 (bf16: 200) GFLOP/s, memory at 12 GB/s.
double Microseconds(const GemmShape& s) {
  const double bytes = s.in == DType::kBF16 ? 2 : 4;
  const double m = static_cast<double>(s.m), n = static_cast<double>(s.n),
               k = static_cast<double>(s.k);
  return std::max(2 * m * n * k / (s.in == DType::kBF16 ? 2e5 : 1e5),
                  (m * k + k * n + m * n) * bytes / 1.2e4);
}

Tiles TilesOf(const GemmShape& s) {
  constexpr double kTask = 60, kLongTask = 1000;  // microseconds that are worth a task
  constexpr int64_t kEdge = 64, kMost = 64;
  const double whole = Microseconds(s);
  const double wanted =
      std::clamp(std::max(whole / kLongTask, std::min(8.0, whole / kTask)), 1.0, double{kMost});
  Tiles tiles{.m = s.m, .n = s.n, .rows = 1, .columns = 1};
  while (static_cast<double>(tiles.rows * tiles.columns) < wanted) {
    int64_t& edge = tiles.m > tiles.n ? tiles.m : tiles.n;
    if (edge <= kEdge) break;
    edge = CeilDiv(CeilDiv(edge, 2), kEdge) * kEdge;
    tiles.rows = CeilDiv(s.m, tiles.m);
    tiles.columns = CeilDiv(s.n, tiles.n);
  }
  tiles.matrices_together = std::max<int64_t>(1, static_cast<int64_t>(kTask / whole));
  return tiles;
}

// Whether every element that strides reach lies within `count`.
bool Within(const std::vector<std::pair<int64_t, int64_t>>& sizes_and_strides, size_t count) {
  int64_t last = 0;
  for (const auto& [size, stride] : sizes_and_strides) {
    if (size <= 0 || stride < 0) return false;
    last += (size - 1) * stride;
  }
  return static_cast<size_t>(last) < count;
}

ffi::Error Matmul(ffi::ThreadPool pool, ffi::AnyBuffer lhs, ffi::AnyBuffer rhs,
                  ffi::Result<ffi::AnyBuffer> out, Sizes sizes, Sizes strides, Sizes batch,
                  Sizes lhs_batch, Sizes rhs_batch, Sizes out_batch) {
  if (sizes.size() != 3 || strides.size() != 5 || lhs_batch.size() != batch.size() ||
      rhs_batch.size() != batch.size() || out_batch.size() != batch.size()) {
    return ffi::Error::InvalidArgument("meshwright.matmul: attributes do not fit");
  }
  const bool bf16 = lhs.element_type() == ffi::BF16;
  if (!IsKnown(lhs.element_type()) || rhs.element_type() != lhs.element_type() ||
      !IsKnown(out->element_type()) || (!bf16 && out->element_type() == ffi::BF16)) {
    return ffi::Error::InvalidArgument("meshwright.matmul: operands must be f32 or bf16");
  }
  GemmShape shape{.m = sizes[0],
                  .n = sizes[1],
                  .k = sizes[2],
                  .lhs_m = strides[0],
                  .lhs_k = strides[1],
                  .rhs_k = strides[2],
                  .rhs_n = strides[3],
                  .out_m = strides[4],
                  .in = DTypeOf(lhs.element_type()),
                  .out = DTypeOf(out->element_type())};
  std::vector<std::pair<int64_t, int64_t>> in_lhs = {{shape.m, shape.lhs_m},
                                                     {shape.k, shape.lhs_k}},
                                           in_rhs = {{shape.k, shape.rhs_k},
                                                     {shape.n, shape.rhs_n}},
                                           in_out = {{shape.m, shape.out_m}, {shape.n, 1}};
  for (size_t i = 0; i < batch.size(); ++i) {
    in_lhs.emplace_back(batch[i], lhs_batch[i]);
    in_rhs.emplace_back(batch[i], rhs_batch[i]);
    in_out.emplace_back(batch[i], out_batch[i]);
  }
  if (!Within(in_lhs, lhs.element_count()) || !Within(in_rhs, rhs.element_count()) ||
      !Within(in_out, out->element_count())) {
    return ffi::Error::InvalidArgument("meshwright.matmul: strides leave the operands");
  }

  const int64_t matrices =
      std::accumulate(batch.begin(), batch.end(), int64_t{1}, std::multiplies<>());
  const Tiles tiles = TilesOf(shape);
  const int64_t in_bytes = bf16 ? 2 : 4, out_bytes = shape.out == DType::kBF16 ? 2 : 4;
  const auto* lhs_data = static_cast<const char*>(lhs.untyped_data());
  const auto* rhs_data = static_cast<const char*>(rhs.untyped_data());
  auto* out_data = static_cast<char*>(out->untyped_data());
  const bool few_rows = IsOfFewRows(shape);
  const auto compute = [&](int64_t matrix, int64_t row, int64_t column) {
    int64_t lhs_at = row * shape.lhs_m, rhs_at = column * shape.rhs_n,
            out_at = row * shape.out_m + column;
    for (size_t i = batch.size(); i-- > 0; matrix /= batch[i]) {
      const int64_t at = matrix % batch[i];
      lhs_at += at * lhs_batch[i];
      rhs_at += at * rhs_batch[i];
      out_at += at * out_batch[i];
    }
    GemmShape tile = shape;
    tile.m = std::min(tiles.m, shape.m - row);
    tile.n = std::min(tiles.n, shape.n - column);
    (few_rows ? FewRows : Gemm)(tile, lhs_data + lhs_at * in_bytes, rhs_data + rhs_at * in_bytes,
                                out_data + out_at * out_bytes);
  };
  const int64_t in_matrix = tiles.rows * tiles.columns;
  const int64_t together = in_matrix > 1 ? 1 : tiles.matrices_together;
  return Guarded("meshwright.matmul", [&] {
    ParallelFor(pool, CeilDiv(matrices * in_matrix, together), [&](int64_t task) {
      const int64_t end = std::min(matrices * in_matrix, (task + 1) * together);
      for (int64_t i = task * together; i < end; ++i) {
        const int64_t tile = i % in_matrix;
        compute(i / in_matrix, tile / tiles.columns * tiles.m, tile % tiles.columns * tiles.n);
      }
    });
  });
}

XLA_FFI_DEFINE_HANDLER(kMatmul, Matmul,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<Sizes>("sizes")
                           .Attr<Sizes>("strides")
                           .Attr<Sizes>("batch")
                           .Attr<Sizes>("lhs_batch")
                           .Attr<Sizes>("rhs_batch")
                           .Attr<Sizes>("out_batch"));

}  // namespace

XLA_FFI_Error* MatmulHandler(XLA_FFI_CallFrame* frame) { return kMatmul(frame); }

}  // namespace mw::kernels
