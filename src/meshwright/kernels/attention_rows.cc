#include "meshwright/kernels/attention_rows.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "meshwright/base/bfloat16.h"
#include "meshwright/kernels/highway_targets.h"

// Compiled once for each instruction set; HWY_DYNAMIC_DISPATCH takes the best that there is.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "meshwright/kernels/attention_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "meshwright/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mw::kernels::HWY_NAMESPACE {

using S32 = hn::RebindToSigned<F32>;
using Mask = hn::Mask<F32>;

// Which of the keys from `at` on count.
HWY_INLINE Mask Counts(const ScoreRow& row, int64_t at) {
  const F32 d;
  const S32 di;
  const int64_t left = row.num_earlier - at;
  Mask counts = hn::FirstN(d, left > 0 ? static_cast<size_t>(left) : 0);
  if (row.segments != nullptr) {
    counts = hn::And(counts, hn::RebindMask(d, hn::Eq(hn::Load(di, row.segments + at),
                                                      hn::Set(di, row.segment))));
  }
  return counts;
}

float SoftmaxPart(const ScoreRow& row, float* HWY_RESTRICT scores, uint16_t* HWY_RESTRICT narrow,
                  float* max) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec scale = hn::Set(d, row.scale);
  const Vec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  Vec largest = lowest;
  for (int64_t i = 0; i < row.num_earlier; i += lanes) {
    const Vec s = hn::Mul(hn::Load(d, scores + i), scale);
    largest = hn::Max(largest, hn::IfThenElse(Counts(row, i), s, lowest));
  }
  const float before = *max;
  const float here = hn::GetLane(hn::MaxOfLanes(d, largest));
  *max = here > before ? here : before;
  // Nothing counts so far: no score is subtracted from itself.
  const bool none = *max == -std::numeric_limits<float>::infinity();
  const Vec shift = hn::Set(d, none ? 0.0F : *max);
  Vec sum = hn::Zero(d);
  for (int64_t i = 0; i < row.num_keys; i += lanes) {
    const Vec s = hn::MulSub(hn::Load(d, scores + i), scale, shift);
    const Vec p = hn::IfThenElseZero(Counts(row, i), hn::Exp(d, s));
    sum = hn::Add(sum, p);
    if (narrow != nullptr) {
      StoreNarrow(p, narrow + i);
    } else {
      hn::Store(p, d, scores + i);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void SoftmaxGradient(const ScoreRow& row, float log_sum_exp, float delta,
                     float* HWY_RESTRICT scores, float* HWY_RESTRICT dprobs,
                     uint16_t* HWY_RESTRICT narrow, uint16_t* HWY_RESTRICT narrow_gradient) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec scale = hn::Set(d, row.scale);
  const Vec shift = hn::Set(d, log_sum_exp);
  const Vec mean = hn::Set(d, delta);
  for (int64_t i = 0; i < row.num_keys; i += lanes) {
    const Mask counts = Counts(row, i);
    const Vec s = hn::MulSub(hn::Load(d, scores + i), scale, shift);
    const Vec p = hn::IfThenElseZero(counts, hn::Exp(d, s));
    const Vec ds = hn::IfThenElseZero(counts, hn::Mul(p, hn::Sub(hn::Load(d, dprobs + i), mean)));
    if (narrow != nullptr) {
      StoreNarrow(p, narrow + i);
      StoreNarrow(ds, narrow_gradient + i);
    } else {
      hn::Store(p, d, scores + i);
      hn::Store(ds, d, dprobs + i);
    }
  }
}

void Scale(const float* in, int64_t n, float factor, void* out, bool to_bf16) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec by = hn::Set(d, factor);
  auto* wide = static_cast<float*>(out);
  auto* narrow = static_cast<uint16_t*>(out);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const Vec v = hn::Mul(hn::LoadU(d, in + i), by);
    if (to_bf16) {
      StoreNarrow(v, narrow + i);
    } else {
      hn::StoreU(v, d, wide + i);
    }
  }
  for (; i < n; ++i) {
    const float v = in[i] * factor;
    if (to_bf16) {
      narrow[i] = FloatToBFloat16(v);
    } else {
      wide[i] = v;
    }
  }
}

// Rows whose reading is worth the time that memory takes to answer.
constexpr int64_t kAhead = 24;

// Dot products of kGroups queries and kRows rows. Meanwhile memory is asked for the rows after them
// and for those of `next`.
template <int kGroups, int kRows, typename T>
HWY_INLINE void DotBlock(const float* HWY_RESTRICT q, const T* HWY_RESTRICT rows,
                         const T* HWY_RESTRICT next, int64_t stride, int64_t width,
                         float* HWY_RESTRICT scores, int64_t score_stride) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec sums[kGroups][4];
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < 4; ++i) sums[g][i] = hn::Zero(d);
  }
  int64_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    Vec row[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      row[i] = LoadWide(rows + i * stride + j);
      PrefetchToL2(rows + (kAhead + i) * stride + j);
      PrefetchToL2(next + i * stride + j);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const Vec query = hn::LoadU(d, q + g * width + j);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[g][i] = hn::MulAdd(query, row[i], sums[g][i]);
    }
  }
  for (int g = 0; g < kGroups; ++g) {
    float total[4];
    Totals(sums[g][0], sums[g][1], sums[g][2], sums[g][3], total);
    for (int i = 0; i < kRows; ++i) {
      for (int64_t at = j; at < width; ++at) {
        total[i] += q[g * width + at] * Widened(rows[i * stride + at]);
      }
      scores[g * score_stride + i] = total[i];
    }
  }
}

template <int kGroups, typename T>
void DotGroups(const float* q, const T* rows, const T* next, int64_t num_rows, int64_t stride,
               int64_t width, float* scores, int64_t score_stride) {
  const auto block = [&](auto together, int64_t i) {
    DotBlock<kGroups, together()>(q, rows + i * stride, next + i * stride, stride, width,
                                  scores + i, score_stride);
  };
  int64_t i = 0;
  for (; i + 4 <= num_rows; i += 4) block(std::integral_constant<int, 4>(), i);
  for (; i < num_rows; ++i) block(std::integral_constant<int, 1>(), i);
}

// Up to kGroups weighted sums of rows: kVectors vectors of each, which stay in registers.
template <int kGroups, int kVectors, typename T>
HWY_INLINE void WeightedBlock(const float* HWY_RESTRICT weights, int64_t weight_stride,
                              const T* HWY_RESTRICT rows, int64_t num_rows, int64_t stride,
                              float* HWY_RESTRICT out, int64_t width) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec sums[kGroups][kVectors];
  for (int g = 0; g < kGroups; ++g) {
    for (int v = 0; v < kVectors; ++v) sums[g][v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    Vec row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = LoadWide(rows + i * stride + v * lanes);
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const Vec weight = hn::Set(d, weights[g * weight_stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[g][v] = hn::MulAdd(weight, row[v], sums[g][v]);
    }
  }
  for (int g = 0; g < kGroups; ++g) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[g][v], d, out + g * width + v * lanes);
  }
}

template <int kGroups, typename T>
void WeightedGroups(const float* weights, int64_t weight_stride, const T* rows, int64_t num_rows,
                    int64_t stride, int64_t width, float* out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + 4 * lanes <= width; j += 4 * lanes) {
    WeightedBlock<kGroups, 4>(weights, weight_stride, rows + j, num_rows, stride, out + j, width);
  }
  for (; j + lanes <= width; j += lanes) {
    WeightedBlock<kGroups, 1>(weights, weight_stride, rows + j, num_rows, stride, out + j, width);
  }
  for (; j < width; ++j) {
    for (int g = 0; g < kGroups; ++g) {
      float sum = 0;
      for (int64_t i = 0; i < num_rows; ++i) {
        sum += weights[g * weight_stride + i] * Widened(rows[i * stride + j]);
      }
      out[g * width + j] = sum;
    }
  }
}

// Calls f with the constant of how many groups are computed together, and their first one.
template <typename F>
HWY_INLINE void ForGroups(int64_t groups, const F& f) {
  int64_t g = 0;
  for (; groups - g > 4; g += 4) f(std::integral_constant<int, 4>(), g);
  switch (groups - g) {
    case 4:
      return f(std::integral_constant<int, 4>(), g);
    case 3:
      return f(std::integral_constant<int, 3>(), g);
    case 2:
      return f(std::integral_constant<int, 2>(), g);
    default:
      return f(std::integral_constant<int, 1>(), g);
  }
}

template <typename T>
void DotRowsOf(const float* q, int64_t groups, const T* rows, const T* next, int64_t num_rows,
               int64_t stride, int64_t width, float* scores, int64_t score_stride) {
  ForGroups(groups, [&](auto together, int64_t g) {
    DotGroups<together()>(q + g * width, rows, next, num_rows, stride, width,
                          scores + g * score_stride, score_stride);
  });
}

template <typename T>
void WeightedRowsOf(const float* weights, int64_t weight_stride, int64_t groups, const T* rows,
                    int64_t num_rows, int64_t stride, int64_t width, float* out) {
  ForGroups(groups, [&](auto together, int64_t g) {
    WeightedGroups<together()>(weights + g * weight_stride, weight_stride, rows, num_rows, stride,
                               width, out + g * width);
  });
}

void DotRows(const float* q, int64_t groups, const void* rows, const void* next, bool bf16,
             int64_t num_rows, int64_t stride, int64_t width, float* scores, int64_t score_stride) {
  if (bf16) {
    DotRowsOf(q, groups, static_cast<const uint16_t*>(rows), static_cast<const uint16_t*>(next),
              num_rows, stride, width, scores, score_stride);
  } else {
    DotRowsOf(q, groups, static_cast<const float*>(rows), static_cast<const float*>(next), num_rows,
              stride, width, scores, score_stride);
  }
}

void WeightedRows(const float* weights, int64_t weight_stride, int64_t groups, const void* rows,
                  bool bf16, int64_t num_rows, int64_t stride, int64_t width, float* out) {
  if (bf16) {
    WeightedRowsOf(weights, weight_stride, groups, static_cast<const uint16_t*>(rows), num_rows,
                   stride, width, out);
  } else {
    WeightedRowsOf(weights, weight_stride, groups, static_cast<const float*>(rows), num_rows,
                   stride, width, out);
  }
}

void AddTo(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t n) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, a + i);
  }
  for (; i < n; ++i) a[i] += b[i];
}

}  // namespace mw::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mw::kernels {

HWY_EXPORT(SoftmaxPart);
HWY_EXPORT(SoftmaxGradient);
HWY_EXPORT(Scale);
HWY_EXPORT(AddTo);
HWY_EXPORT(DotRows);
HWY_EXPORT(WeightedRows);

float SoftmaxPart(const ScoreRow& row, float* scores, uint16_t* narrow, float* max) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxPart)(row, scores, narrow, max);
}
void SoftmaxGradient(const ScoreRow& row, float log_sum_exp, float delta, float* scores,
                     float* dprobs, uint16_t* narrow, uint16_t* narrow_gradient) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradient)
  (row, log_sum_exp, delta, scores, dprobs, narrow, narrow_gradient);
}
void Scale(const float* in, int64_t n, float factor, void* out, bool to_bf16) {
  HWY_DYNAMIC_DISPATCH(Scale)(in, n, factor, out, to_bf16);
}
void DotRows(const float* q, int64_t groups, const void* rows, const void* next, bool bf16,
             int64_t num_rows, int64_t stride, int64_t width, float* scores, int64_t score_stride) {
  HWY_DYNAMIC_DISPATCH(DotRows)
  (q, groups, rows, next, bf16, num_rows, stride, width, scores, score_stride);
}
void WeightedRows(const float* weights, int64_t weight_stride, int64_t groups, const void* rows,
                  bool bf16, int64_t num_rows, int64_t stride, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(WeightedRows)
  (weights, weight_stride, groups, rows, bf16, num_rows, stride, width, out);
}
void ConvertRow(const void* from, bool from_bf16, int64_t n, void* to, bool to_bf16) {
  if (from_bf16 == to_bf16) {
    std::memcpy(to, from, static_cast<size_t>(n) * (to_bf16 ? 2 : 4));
  } else if (from_bf16) {
    const auto* narrow = static_cast<const uint16_t*>(from);
    for (int64_t i = 0; i < n; ++i) static_cast<float*>(to)[i] = BFloat16ToFloat(narrow[i]);
  } else {
    Scale(static_cast<const float*>(from), n, 1, to, to_bf16);
  }
}
void RoundRow(float* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] = BFloat16ToFloat(FloatToBFloat16(row[i]));
}
void AddTo(float* a, const float* b, int64_t n) { HWY_DYNAMIC_DISPATCH(AddTo)(a, b, n); }

}  // namespace mw::kernels
#endif  // HWY_ONCE
