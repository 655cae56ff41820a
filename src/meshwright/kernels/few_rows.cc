#include "meshwright/kernels/few_rows.h"

#include <algorithm>
#include <type_traits>

#include "meshwright/base/bfloat16.h"
#include "meshwright/kernels/highway_targets.h"
#include "meshwright/kernels/parallel_for.h"
#include "meshwright/kernels/scratch.h"

// Compiled once for each instruction set; HWY_DYNAMIC_DISPATCH takes the best that there is.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "meshwright/kernels/few_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "meshwright/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mw::kernels::HWY_NAMESPACE {

HWY_INLINE void Put(float sum, float* out) { *out = sum; }
HWY_INLINE void Put(float sum, uint16_t* out) { *out = FloatToBFloat16(sum); }

// Rows of lhs as Block reads them: the vectors of number `l` of all rows together, as floats. What
// is left of k beyond whole vectors is not among it.
template <int kRows, typename T>
void Pack(const T* HWY_RESTRICT lhs, int64_t lhs_m, int64_t k, float* HWY_RESTRICT packed) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t l = 0; l + lanes <= k; l += lanes) {
    for (int i = 0; i < kRows; ++i, packed += lanes) {
      hn::StoreU(LoadWide(lhs + i * lhs_m + l), d, packed);
    }
  }
}

// Rows of rhs, of float32 or bf16.
template <typename T>
struct FloatRows {
  static constexpr bool kHasScales = false;
  const T* HWY_RESTRICT data;
  int64_t stride;

  FloatRows From(int64_t row) const { return {data + row * stride, stride}; }
  HWY_INLINE Vec Load(int64_t row, int64_t l) const { return LoadWide(data + row * stride + l); }
  HWY_INLINE float At(int64_t row, int64_t l) const { return Widened(data[row * stride + l]); }
  HWY_INLINE void Prefetch(int64_t row, int64_t l) const { PrefetchToL2(data + row * stride + l); }
};

// Rows of rhs, of int8 in blocks with scales; whole vectors lie within a block.
struct QuantizedRows {
  static constexpr bool kHasScales = true;
  const int8_t* HWY_RESTRICT data;
  const float* HWY_RESTRICT scales;
  int64_t stride;  // of data

  QuantizedRows From(int64_t row) const {
    return {data + row * stride, scales + row * stride / kQuantizedBlock, stride};
  }
  HWY_INLINE Vec Scale(int64_t row, int64_t l) const {
    return hn::Set(F32(), scales[(row * stride + l) / kQuantizedBlock]);
  }
  // Not yet scaled.
  HWY_INLINE Vec Steps(int64_t row, int64_t l) const {
    const hn::Rebind<int8_t, F32> narrow;
    const hn::RebindToSigned<F32> wide;
    return hn::ConvertTo(F32(), hn::PromoteTo(wide, hn::LoadU(narrow, data + row * stride + l)));
  }
  HWY_INLINE Vec Load(int64_t row, int64_t l) const {
    return hn::Mul(Steps(row, l), Scale(row, l));
  }
  HWY_INLINE float At(int64_t row, int64_t l) const {
    const int64_t at = row * stride + l;
    return static_cast<float>(data[at]) * scales[at / kQuantizedBlock];
  }
  HWY_INLINE void Prefetch(int64_t row, int64_t l) const { PrefetchToL2(data + row * stride + l); }
};

// Adds the products of one row of lhs and kColumns rows of rhs, block by block: a block's sum is
// scaled, not its numbers.
template <int kColumns>
HWY_INLINE void AddBlocks(const float* HWY_RESTRICT row, const QuantizedRows& rhs, int64_t k,
                          Vec (&sums)[1][kColumns]) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t l = 0; l < k; l += kQuantizedBlock) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      Vec sum = hn::Mul(hn::LoadU(d, row + l), rhs.Steps(j, l));
      for (int64_t at = l + lanes; at < l + kQuantizedBlock; at += lanes) {
        sum = hn::MulAdd(hn::LoadU(d, row + at), rhs.Steps(j, at), sum);
      }
      sums[0][j] = hn::MulAdd(sum, rhs.Scale(j, l), sums[0][j]);
      rhs.Prefetch(j + kColumns, l);
    }
  }
}

// kRows rows of lhs times kColumns rows of rhs, both of k numbers; out[i * out_m + j]. The sums
// are in registers: loops over them have to be unrolled. Meanwhile kAhead rows of rhs, from row
// `ahead` on, are asked for.
template <int kRows, int kColumns, int kAhead, typename T, typename Rhs, typename Out>
HWY_INLINE void Block(const T* HWY_RESTRICT lhs, int64_t lhs_m, const float* HWY_RESTRICT packed,
                      const Rhs rhs, int64_t ahead, int64_t k, Out* HWY_RESTRICT out,
                      int64_t out_m) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec sums[kRows][kColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::Zero(d);
  }
  int64_t l = 0;
  if constexpr (Rhs::kHasScales && kRows == 1) {
    AddBlocks<kColumns>(packed, rhs, k, sums);
    l = k;
  }
  for (; l + lanes <= k; l += lanes, packed += kRows * lanes) {
    Vec of_rhs[kColumns];
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      of_rhs[j] = rhs.Load(j, l);
      if (j < kAhead) rhs.Prefetch(ahead + j, l);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec of_lhs = InRegister(hn::LoadU(d, packed + i * lanes));
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::MulAdd(of_lhs, of_rhs[j], sums[i][j]);
    }
  }
  // Four at a time: of 4 rows and a column, or of a row and 4 columns.
  constexpr int kBy = kRows % 4 == 0 ? 4 : 1;
  constexpr int kAcross = kBy == 1 && kColumns % 4 == 0 ? 4 : 1;
#pragma GCC unroll 8
  for (int i = 0; i < kRows; i += kBy) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; j += kAcross) {
      float total[4];
      if constexpr (kBy == 4) {
        Totals(sums[i][j], sums[i + 1][j], sums[i + 2][j], sums[i + 3][j], total);
      } else if constexpr (kAcross == 4) {
        Totals(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3], total);
      } else {
        total[0] = hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
      }
      for (int part = 0; part < std::max(kBy, kAcross); ++part) {
        const int row = kBy == 4 ? i + part : i;
        const int column = kAcross == 4 ? j + part : j;
        for (int64_t at = l; at < k; ++at) {
          total[part] += Widened(lhs[row * lhs_m + at]) * rhs.At(column, at);
        }
        Put(total[part], out + row * out_m + column);
      }
    }
  }
}

// kAhead rows, `ahead` of each block's first, are asked for; 0: those of the next block.
template <int kRows, int kAhead, typename T, typename Rhs, typename Out>
void Columns(const GemmShape& s, const T* lhs, const float* packed, const Rhs& rhs, int64_t ahead,
             Out* out) {
  constexpr int kColumns = kRows > 4 ? 3 : 4;
  constexpr int kOfBlock = kAhead == 0 ? kColumns : kAhead;
  if (kAhead == 0) ahead = kColumns;
  int64_t j = 0;
  for (; j + kColumns <= s.n; j += kColumns) {
    Block<kRows, kColumns, kOfBlock>(lhs, s.lhs_m, packed, rhs.From(j), ahead, s.k, out + j,
                                     s.out_m);
  }
  for (; j < s.n; ++j) {
    Block<kRows, 1, 1>(lhs, s.lhs_m, packed, rhs.From(j), ahead, s.k, out + j, s.out_m);
  }
}

// Calls f with the constant of how many rows are computed together, and their first one.
template <typename F>
void ForGroupsOfRows(int64_t m, const F& f) {
  int64_t row = 0;
  for (; m - row >= kRowsTogether; row += kRowsTogether) {
    f(std::integral_constant<int, kRowsTogether>(), row);
  }
  if (m - row >= 4) f(std::integral_constant<int, 4>(), row), row += 4;
  if (m - row >= 2) f(std::integral_constant<int, 2>(), row), row += 2;
  if (m - row >= 1) f(std::integral_constant<int, 1>(), row);
}

// `next` columns from the first a thread probably goes on.
template <typename T, typename Rhs, typename Out>
void Compute(const GemmShape& s, const T* lhs, const float* packed, const Rhs& rhs, int64_t next,
             Out* out) {
  // Columns that a core's cache holds, so that rows beyond the first eight find them there. While
  // these are computed, memory brings the next columns.
  const int64_t panel = s.m <= kRowsTogether ? s.n : kFewRowsPanel;
  for (int64_t n = 0; n < s.n; n += panel) {
    GemmShape part = s;
    part.n = std::min(panel, s.n - n);
    const int64_t ahead = n + panel < s.n ? panel : next - n;
    ForGroupsOfRows(s.m, [&](auto rows, int64_t row) {
      const T* of_lhs = lhs + row * s.lhs_m;
      const float* of_packed = packed + row * s.k;
      Out* to = out + row * s.out_m + n;
      if (row == 0) {
        Columns<rows(), 0>(part, of_lhs, of_packed, rhs.From(n), 0, to);
      } else if (s.m >= 32) {
        // Three times a third of them.
        Columns<rows(), 1>(part, of_lhs, of_packed, rhs.From(n), ahead + row / kRowsTogether % 3,
                           to);
      } else {
        Columns<rows(), 3>(part, of_lhs, of_packed, rhs.From(n), ahead, to);
      }
    });
  }
}

// Calls Compute with `lhs` and `out` as they are.
template <typename Rhs>
void ComputeOf(const GemmShape& s, const void* lhs, const float* packed, const Rhs& rhs,
               int64_t next, void* out) {
  if (s.in == DType::kF32) {
    Compute(s, static_cast<const float*>(lhs), packed, rhs, next, static_cast<float*>(out));
  } else if (s.out == DType::kF32) {
    Compute(s, static_cast<const uint16_t*>(lhs), packed, rhs, next, static_cast<float*>(out));
  } else {
    Compute(s, static_cast<const uint16_t*>(lhs), packed, rhs, next, static_cast<uint16_t*>(out));
  }
}

void ComputeAny(const GemmShape& s, const void* lhs, const float* packed, const void* rhs,
                int64_t next, void* out) {
  if (s.in == DType::kF32) {
    ComputeOf(s, lhs, packed, FloatRows<float>{static_cast<const float*>(rhs), s.rhs_n}, next, out);
  } else {
    ComputeOf(s, lhs, packed, FloatRows<uint16_t>{static_cast<const uint16_t*>(rhs), s.rhs_n}, next,
              out);
  }
}

void ComputeQuantized(const GemmShape& s, const void* lhs, const float* packed, const int8_t* data,
                      const float* scales, int64_t next, void* out) {
  ComputeOf(s, lhs, packed, QuantizedRows{data, scales, s.rhs_n}, next, out);
}

void DequantizeAny(const int8_t* data, const float* scales, int64_t n, void* out, bool to_bf16) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const QuantizedRows rows{data, scales, n};
  for (int64_t l = 0; l < n; l += lanes) {
    if (to_bf16) {
      StoreNarrow(rows.Load(0, l), static_cast<uint16_t*>(out) + l);
    } else {
      hn::StoreU(rows.Load(0, l), d, static_cast<float*>(out) + l);
    }
  }
}

void PackAny(const GemmShape& s, const void* lhs, int64_t first, int64_t rows, float* packed) {
  const auto pack = [&](const auto* from) {
    ForGroupsOfRows(rows, [&](auto together, int64_t row) {
      Pack<together()>(from + (first + row) * s.lhs_m, s.lhs_m, s.k, packed + (first + row) * s.k);
    });
  };
  if (s.in == DType::kF32) {
    pack(static_cast<const float*>(lhs));
  } else {
    pack(static_cast<const uint16_t*>(lhs));
  }
}

}  // namespace mw::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mw::kernels {

HWY_EXPORT(ComputeAny);
HWY_EXPORT(PackAny);
HWY_EXPORT(ComputeQuantized);
HWY_EXPORT(DequantizeAny);

bool IsOfFewRows(const GemmShape& s) {
  return s.m <= (s.in == DType::kBF16 ? kFewRowsOfBFloat16 : kFewRows) && s.lhs_k == 1 &&
         s.rhs_k == 1 && !s.accumulate;
}

PackedRows::PackedRows(const GemmShape& shape, const void* lhs, xla::ffi::ThreadPool* pool)
    : lhs_(lhs), packed_(static_cast<const float*>(lhs)) {
  if (shape.m == 1 && shape.in == DType::kF32) return;  // as it has to be
  thread_local Aligned<float> scratch;
  float* const packed = scratch.Get(shape.m * shape.k);
  // Rows that Block takes together.
  const auto pack = [&](int64_t part) {
    const int64_t first = part * kRowsTogether;
    HWY_DYNAMIC_DISPATCH(PackAny)
    (shape, lhs, first, std::min(kRowsTogether, shape.m - first), packed);
  };
  const int64_t parts = (shape.m + kRowsTogether - 1) / kRowsTogether;
  if (pool != nullptr) {
    ParallelFor(*pool, parts, pack);
  } else {
    for (int64_t part = 0; part < parts; ++part) pack(part);
  }
  packed_ = packed;
}

void FewRows(const GemmShape& shape, const PackedRows& lhs, const void* rhs, int64_t next,
             void* out) {
  HWY_DYNAMIC_DISPATCH(ComputeAny)(shape, lhs.lhs(), lhs.packed(), rhs, next, out);
}

void FewRowsQuantized(const GemmShape& shape, const PackedRows& lhs, const int8_t* data,
                      const float* scales, int64_t next, void* out) {
  HWY_DYNAMIC_DISPATCH(ComputeQuantized)(shape, lhs.lhs(), lhs.packed(), data, scales, next, out);
}

void Dequantize(const int8_t* data, const float* scales, int64_t n, void* out, bool to_bf16) {
  HWY_DYNAMIC_DISPATCH(DequantizeAny)(data, scales, n, out, to_bf16);
}

int64_t FewRowsTaskColumns(const GemmShape& shape, double microseconds) {
  constexpr int64_t kMost = 64;
  const int64_t together = shape.m <= kRowsTogether ? kFewRowsColumns : kFewRowsPanel;
  const int64_t smallest_tasks = (shape.n + together - 1) / together;
  const int64_t tasks = std::clamp<int64_t>(static_cast<int64_t>(microseconds / kFewRowsTask), 1,
                                            std::min(kMost, smallest_tasks));
  return (smallest_tasks + tasks - 1) / tasks * together;
}

}  // namespace mw::kernels
#endif  // HWY_ONCE
