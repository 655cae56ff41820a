#include "meshwright/kernels/few_rows.h"

#include <algorithm>

#include "meshwright/base/bfloat16.h"

// Compiled once for each instruction set; HWY_DYNAMIC_DISPATCH takes the best that there is.
// Arrays of vectors need vectors of a fixed size.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "meshwright/kernels/few_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mw::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;

HWY_INLINE Vec LoadAt(const float* p) { return hn::LoadU(F32(), p); }
HWY_INLINE Vec LoadAt(const uint16_t* p) {
  const hn::Rebind<uint16_t, F32> narrow;
  const hn::RebindToUnsigned<F32> wide;
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, p))));
}
HWY_INLINE float Widened(float x) { return x; }
HWY_INLINE float Widened(uint16_t x) { return BFloat16ToFloat(x); }
HWY_INLINE void Put(float sum, float* out) { *out = sum; }
HWY_INLINE void Put(float sum, uint16_t* out) { *out = FloatToBFloat16(sum); }

// The sums of the lanes of four vectors.
HWY_INLINE void Totals(Vec a, Vec b, Vec c, Vec e, float* HWY_RESTRICT total) {
#if HWY_TARGET == HWY_SCALAR
  total[0] = hn::GetLane(a);
  total[1] = hn::GetLane(b);
  total[2] = hn::GetLane(c);
  total[3] = hn::GetLane(e);
#else
  const F32 d;
  const hn::Repartition<double, F32> pairs;
  const auto halved = [&](Vec x, Vec y) {
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, x, y), hn::InterleaveUpper(d, x, y)));
  };
  // In every block of four lanes the sums of a, b, c and e in that block.
  const auto ab = halved(a, b), ce = halved(c, e);
  const Vec blocks = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)),
                             hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce)));
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(blocks, d, lanes);
  const hn::FixedTag<float, 4> four;
  auto sum = hn::Load(four, lanes);
  for (size_t at = 4; at < hn::Lanes(d); at += 4) sum = hn::Add(sum, hn::Load(four, lanes + at));
  hn::StoreU(sum, four, total);
#endif
}

// kRows rows of lhs times kColumns rows of rhs, both of k numbers; out[i * out_m + j]. The sums
// are in registers: loops over them have to be unrolled.
template <int kRows, int kColumns, typename T, typename Out>
HWY_INLINE void Block(const T* HWY_RESTRICT lhs, int64_t lhs_m, const T* HWY_RESTRICT rhs,
                      int64_t rhs_n, int64_t k, Out* HWY_RESTRICT out, int64_t out_m) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec sums[kRows][kColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::Zero(d);
  }
  int64_t l = 0;
  for (; l + lanes <= k; l += lanes) {
    Vec of_rhs[kColumns];
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      of_rhs[j] = LoadAt(rhs + j * rhs_n + l);
      // The rows of the next block: sums of this one are done when they are needed.
      __builtin_prefetch(rhs + (j + kColumns) * rhs_n + l);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec of_lhs = LoadAt(lhs + i * lhs_m + l);
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
void Columns(const GemmShape& s, const T* lhs, const T* rhs, Out* out) {
  constexpr int kColumns = kRows > 4 ? 3 : 4;
  int64_t j = 0;
  for (; j + kColumns <= s.n; j += kColumns) {
    Block<kRows, kColumns>(lhs, s.lhs_m, rhs + j * s.rhs_n, s.rhs_n, s.k, out + j, s.out_m);
  }
  for (; j < s.n; ++j) {
    Block<kRows, 1>(lhs, s.lhs_m, rhs + j * s.rhs_n, s.rhs_n, s.k, out + j, s.out_m);
  }
}

template <typename T, typename Out>
void Compute(const GemmShape& s, const T* lhs, const T* rhs, Out* out) {
  // Columns that a core's cache holds, so that rows beyond the first eight find them there.
  const int64_t panel = s.m <= 8 ? s.n : std::max<int64_t>(12, (1 << 16) / s.k / 12 * 12);
  for (int64_t n = 0; n < s.n; n += panel) {
    GemmShape part = s;
    part.n = std::min(panel, s.n - n);
    for (int64_t m = 0; m < s.m;) {
      const T* rows = lhs + m * s.lhs_m;
      const T* columns = rhs + n * s.rhs_n;
      Out* to = out + m * s.out_m + n;
      const int64_t left = s.m - m;
      if (left >= 8) {
        Columns<8>(part, rows, columns, to);
        m += 8;
      } else if (left >= 4) {
        Columns<4>(part, rows, columns, to);
        m += 4;
      } else if (left >= 2) {
        Columns<2>(part, rows, columns, to);
        m += 2;
      } else {
        Columns<1>(part, rows, columns, to);
        m += 1;
      }
    }
  }
}

void ComputeAny(const GemmShape& s, const void* lhs, const void* rhs, void* out) {
  if (s.in == DType::kF32) {
    Compute(s, static_cast<const float*>(lhs), static_cast<const float*>(rhs),
            static_cast<float*>(out));
    return;
  }
  const auto* a = static_cast<const uint16_t*>(lhs);
  const auto* b = static_cast<const uint16_t*>(rhs);
  if (s.out == DType::kF32) {
    Compute(s, a, b, static_cast<float*>(out));
  } else {
    Compute(s, a, b, static_cast<uint16_t*>(out));
  }
}

}  // namespace mw::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mw::kernels {

HWY_EXPORT(ComputeAny);

bool IsOfFewRows(const GemmShape& s) {
  return s.m <= kFewRows && s.lhs_k == 1 && s.rhs_k == 1 && !s.accumulate;
}

void FewRows(const GemmShape& shape, const void* lhs, const void* rhs, void* out) {
  HWY_DYNAMIC_DISPATCH(ComputeAny)(shape, lhs, rhs, out);
}

}  // namespace mw::kernels
#endif  // HWY_ONCE
