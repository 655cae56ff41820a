// meshwright.matmul: products of matrices by oneDNN, cut into tiles that threads share.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

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

// Microseconds that one core takes for the arithmetic, roughly: at 100 (bf16: 200) GFLOP/s.
double ArithmeticTime(const GemmShape& s) {
  return 2 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) /
         (s.in == DType::kBF16 ? 2e5 : 1e5);
}

// The same for reading operands of so many elements from a cache that several cores share, or where
// `from_memory` from memory.
double ReadTime(const GemmShape& s, int64_t elements, bool from_memory) {
  const double bytes = static_cast<double>(elements) * (s.in == DType::kBF16 ? 2 : 4);
  return bytes / (from_memory ? 1.5e4 : 6e4);
}

// What tiles cost beside the arithmetic: each reads rows and columns anew, and oneDNN is slower
// with results that are a part of wider rows.
double CostOf(const Tiles& t, const GemmShape& s) {
  constexpr int64_t kShared = int64_t{2} << 20;  // elements that stay in a shared cache
  constexpr double kNarrow = 0.1;
  return ReadTime(s, t.columns * s.m * s.k, s.m * s.k > kShared) +
         ReadTime(s, t.rows * s.k * s.n, s.k * t.n > kShared) +
         (t.columns > 1 ? kNarrow * ArithmeticTime(s) : 0);
}

// Tiles for as many cores as the work is worth, of all such those that cost least.
Tiles TilesOf(const GemmShape& s) {
  constexpr double kTask = 60, kLongTask = 2500;  // microseconds that are worth a task
  constexpr int64_t kEdge = 64;
  const double whole =
      std::max(ArithmeticTime(s), ReadTime(s, s.m * s.k + s.k * s.n + s.m * s.n, true));
  const int64_t most_rows = CeilDiv(s.m, kEdge), most_columns = CeilDiv(s.n, kEdge);
  const int64_t wanted = std::min(
      static_cast<int64_t>(std::clamp(whole / kLongTask, std::min(8.0, whole / kTask), 16.0)),
      most_rows * most_columns);
  Tiles best{.m = s.m, .n = s.n, .rows = 1, .columns = 1};
  if (wanted <= 1) {
    best.matrices_together = std::max<int64_t>(1, static_cast<int64_t>(kTask / whole));
    return best;
  }
  double least = std::numeric_limits<double>::infinity();
  for (int64_t rows = 1; rows <= std::min(2 * wanted, most_rows); ++rows) {
    Tiles tiles;
    tiles.m = CeilDiv(CeilDiv(s.m, rows), kEdge) * kEdge;
    tiles.rows = CeilDiv(s.m, tiles.m);
    const int64_t columns = std::min(CeilDiv(wanted, tiles.rows), most_columns);
    tiles.n = CeilDiv(CeilDiv(s.n, columns), kEdge) * kEdge;
    tiles.columns = CeilDiv(s.n, tiles.n);
    if (const double cost = CostOf(tiles, s); cost < least) {
      least = cost;
      best = tiles;
    }
  }
  return best;
}

// The same where rows are few: parts of the columns, and several matrices together only where they
// are tiny.
Tiles TilesOfFewRows(const GemmShape& s) {
  const double whole = std::max(ArithmeticTime(s), ReadTime(s, s.k * s.n, true));
  Tiles tiles{.m = s.m, .n = FewRowsTaskColumns(s, whole), .rows = 1};
  tiles.columns = CeilDiv(s.n, tiles.n);
  if (tiles.columns == 1) {
    tiles.matrices_together = std::max<int64_t>(1, static_cast<int64_t>(kFewRowsTask / whole));
  }
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
  const bool few_rows = IsOfFewRows(shape);
  const Tiles tiles = few_rows ? TilesOfFewRows(shape) : TilesOf(shape);
  const int64_t in_bytes = bf16 ? 2 : 4, out_bytes = shape.out == DType::kBF16 ? 2 : 4;
  const auto* lhs_data = static_cast<const char*>(lhs.untyped_data());
  const auto* rhs_data = static_cast<const char*>(rhs.untyped_data());
  auto* out_data = static_cast<char*>(out->untyped_data());
  std::optional<PackedRows> shared;
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
    const char* const rows = lhs_data + lhs_at * in_bytes;
    const char* const columns = rhs_data + rhs_at * in_bytes;
    char* const to = out_data + out_at * out_bytes;
    if (few_rows) {
      FewRows(tile, shared ? *shared : PackedRows(tile, rows), columns,
              pool.num_threads() * tiles.n, to);
    } else {
      Gemm(tile, rows, columns, to);
    }
  };
  const int64_t in_matrix = tiles.rows * tiles.columns;
  const int64_t together = in_matrix > 1 ? 1 : tiles.matrices_together;
  return Guarded("meshwright.matmul", [&] {
    if (few_rows && matrices == 1) shared.emplace(shape, lhs_data, &pool);
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
