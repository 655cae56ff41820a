#include "meshwright/kernels/few_rows.h"

#include <algorithm>
#include <type_traits>

#include "meshwright/base/bfloat16.h"
#include "meshwright/kernels/scratch.h"

// Compiled once for each instruction set; HWY_DYNAMIC_DISPATCH takes the best that there is.
// Arrays of vectors need vectors of a fixed size.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "meshwright/kernels/few_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "meshwright/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mw::kernels::HWY_NAMESPACE {

HWY_INLINE float Widened(float x) { return x; }
HWY_INLINE float Widened(uint16_t x) { return BFloat16ToFloat(x); }
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

// kRows rows of lhs times kColumns rows of rhs, both of k numbers; out[i * out_m + j]. The sums
// are in registers: loops over them have to be unrolled.
template <int kRows, int kColumns, typename T, typename Out>
HWY_INLINE void Block(const T* HWY_RESTRICT lhs, int64_t lhs_m, const float* HWY_RESTRICT packed,
                      const T* HWY_RESTRICT rhs, int64_t rhs_n, int64_t k, Out* HWY_RESTRICT out,
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
  for (; l + lanes <= k; l += lanes, packed += kRows * lanes) {
    Vec of_rhs[kColumns];
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      of_rhs[j] = LoadWide(rhs + j * rhs_n + l);
      // The rows of the next block: sums of this one are done when they are needed.
      __builtin_prefetch(rhs + (j + kColumns) * rhs_n + l);
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
          total[part] += Widened(lhs[row * lhs_m + at]) * Widened(rhs[column * rhs_n + at]);
        }
        Put(total[part], out + row * out_m + column);
      }
    }
  }
}

template <int kRows, typename T, typename Out>
void Columns(const GemmShape& s, const T* lhs, const float* packed, const T* rhs, Out* out) {
  constexpr int kColumns = kRows > 4 ? 3 : 4;
  int64_t j = 0;
  for (; j + kColumns <= s.n; j += kColumns) {
    Block<kRows, kColumns>(lhs, s.lhs_m, packed, rhs + j * s.rhs_n, s.rhs_n, s.k, out + j, s.out_m);
  }
  for (; j < s.n; ++j) {
    Block<kRows, 1>(lhs, s.lhs_m, packed, rhs + j * s.rhs_n, s.rhs_n, s.k, out + j, s.out_m);
  }
}

// Calls f with the constant of how many rows are computed together, and their first one.
template <typename F>
void ForGroupsOfRows(int64_t m, const F& f) {
  int64_t row = 0;
  for (; m - row >= 8; row += 8) f(std::integral_constant<int, 8>(), row);
  if (m - row >= 4) f(std::integral_constant<int, 4>(), row), row += 4;
  if (m - row >= 2) f(std::integral_constant<int, 2>(), row), row += 2;
  if (m - row >= 1) f(std::integral_constant<int, 1>(), row);
}

template <typename T, typename Out>
void Compute(const GemmShape& s, const T* lhs, const float* packed, const T* rhs, Out* out) {
  // Columns that a core's cache holds, so that rows beyond the first eight find them there.
  const int64_t panel =
      s.m <= 8 ? s.n : std::max<int64_t>(1, (1 << 16) / s.k / kFewRowsColumns) * kFewRowsColumns;
  for (int64_t n = 0; n < s.n; n += panel) {
    GemmShape part = s;
    part.n = std::min(panel, s.n - n);
    ForGroupsOfRows(s.m, [&](auto rows, int64_t row) {
      Columns<rows()>(part, lhs + row * s.lhs_m, packed + row * s.k, rhs + n * s.rhs_n,
                      out + row * s.out_m + n);
    });
  }
}

void ComputeAny(const GemmShape& s, const void* lhs, const float* packed, const void* rhs,
                void* out) {
  if (s.in == DType::kF32) {
    Compute(s, static_cast<const float*>(lhs), packed, static_cast<const float*>(rhs),
            static_cast<float*>(out));
    return;
  }
  const auto* a = static_cast<const uint16_t*>(lhs);
  const auto* b = static_cast<const uint16_t*>(rhs);
  if (s.out == DType::kF32) {
    Compute(s, a, packed, b, static_cast<float*>(out));
  } else {
    Compute(s, a, packed, b, static_cast<uint16_t*>(out));
  }
}

void PackAny(const GemmShape& s, const void* lhs, float* packed) {
  const auto pack = [&](const auto* from) {
    ForGroupsOfRows(s.m, [&](auto rows, int64_t row) {
      Pack<rows()>(from + row * s.lhs_m, s.lhs_m, s.k, packed + row * s.k);
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

bool IsOfFewRows(const GemmShape& s) {
  return s.m <= (s.in == DType::kBF16 ? kFewRowsOfBFloat16 : kFewRows) && s.lhs_k == 1 &&
         s.rhs_k == 1 && !s.accumulate;
}

PackedRows::PackedRows(const GemmShape& shape, const void* lhs) : lhs_(lhs) {
  if (shape.m == 1 && shape.in == DType::kF32) {
    packed_ = static_cast<const float*>(lhs);
    return;
  }
  thread_local Aligned<float> scratch;
  float* const packed = scratch.Get(shape.m * shape.k);
  HWY_DYNAMIC_DISPATCH(PackAny)(shape, lhs, packed);
  packed_ = packed;
}

void FewRows(const GemmShape& shape, const PackedRows& lhs, const void* rhs, void* out) {
  HWY_DYNAMIC_DISPATCH(ComputeAny)(shape, lhs.lhs(), lhs.packed(), rhs, out);
}

}  // namespace mw::kernels
#endif  // HWY_ONCE
