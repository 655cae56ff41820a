#include "meshwright/kernels/attention_rows.h"

#include <cstring>
#include <limits>

#include "meshwright/base/bfloat16.h"

// Compiled once for each instruction set; HWY_DYNAMIC_DISPATCH takes the best that there is.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "meshwright/kernels/attention_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "meshwright/kernels/narrow-inl.h"

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

// Numbers i, i + 1, … of a row of f32 or bf16.
template <bool kNarrow>
HWY_INLINE Vec LoadAt(const void* row, int64_t i) {
  if constexpr (kNarrow) {
    return LoadNarrow(static_cast<const uint16_t*>(row) + i);
  } else {
    return hn::LoadU(F32(), static_cast<const float*>(row) + i);
  }
}
template <bool kNarrow>
HWY_INLINE float ScalarAt(const void* row, int64_t i) {
  if constexpr (kNarrow) return BFloat16ToFloat(static_cast<const uint16_t*>(row)[i]);
  return static_cast<const float*>(row)[i];
}
template <bool kNarrow>
HWY_INLINE const void* RowAt(const void* rows, int64_t element) {
  return static_cast<const char*>(rows) + element * (kNarrow ? 2 : 4);
}

template <bool kNarrow>
void DotRowsOf(const float* HWY_RESTRICT q, int64_t groups, const void* HWY_RESTRICT rows,
               int64_t num_rows, int64_t stride, int64_t width, float* HWY_RESTRICT scores,
               int64_t score_stride) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < num_rows; ++i) {
    const void* row = RowAt<kNarrow>(rows, i * stride);
    for (int64_t g = 0; g < groups; ++g) {
      const float* query = q + g * width;
      Vec sum = hn::Zero(d), other = hn::Zero(d);
      int64_t j = 0;
      for (; j + 2 * lanes <= width; j += 2 * lanes) {
        sum = hn::MulAdd(hn::LoadU(d, query + j), LoadAt<kNarrow>(row, j), sum);
        other = hn::MulAdd(hn::LoadU(d, query + j + lanes), LoadAt<kNarrow>(row, j + lanes), other);
      }
      for (; j + lanes <= width; j += lanes) {
        sum = hn::MulAdd(hn::LoadU(d, query + j), LoadAt<kNarrow>(row, j), sum);
      }
      float dot = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, other)));
      for (; j < width; ++j) dot += query[j] * ScalarAt<kNarrow>(row, j);
      scores[g * score_stride + i] = dot;
    }
  }
}

template <bool kNarrow>
void WeightedRowsOf(const float* HWY_RESTRICT weights, int64_t weight_stride, int64_t groups,
                    const void* HWY_RESTRICT rows, int64_t num_rows, int64_t stride, int64_t width,
                    float* HWY_RESTRICT out) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t g = 0; g < groups; ++g) {
    const float* weight = weights + g * weight_stride;
    int64_t j = 0;
    // Four vectors of the result stay in registers.
    for (; j + 4 * lanes <= width; j += 4 * lanes) {
      Vec a = hn::Zero(d), b = a, c = a, e = a;
      for (int64_t i = 0; i < num_rows; ++i) {
        const Vec w = hn::Set(d, weight[i]);
        const void* row = RowAt<kNarrow>(rows, i * stride + j);
        a = hn::MulAdd(w, LoadAt<kNarrow>(row, 0), a);
        b = hn::MulAdd(w, LoadAt<kNarrow>(row, lanes), b);
        c = hn::MulAdd(w, LoadAt<kNarrow>(row, 2 * lanes), c);
        e = hn::MulAdd(w, LoadAt<kNarrow>(row, 3 * lanes), e);
      }
      hn::StoreU(a, d, out + g * width + j);
      hn::StoreU(b, d, out + g * width + j + lanes);
      hn::StoreU(c, d, out + g * width + j + 2 * lanes);
      hn::StoreU(e, d, out + g * width + j + 3 * lanes);
    }
    for (; j + lanes <= width; j += lanes) {
      Vec a = hn::Zero(d);
      for (int64_t i = 0; i < num_rows; ++i) {
        a = hn::MulAdd(hn::Set(d, weight[i]), LoadAt<kNarrow>(rows, i * stride + j), a);
      }
      hn::StoreU(a, d, out + g * width + j);
    }
    for (; j < width; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < num_rows; ++i)
        sum += weight[i] * ScalarAt<kNarrow>(rows, i * stride + j);
      out[g * width + j] = sum;
    }
  }
}

void DotRows(const float* q, int64_t groups, const void* rows, bool bf16, int64_t num_rows,
             int64_t stride, int64_t width, float* scores, int64_t score_stride) {
  (bf16 ? DotRowsOf<true> : DotRowsOf<false>)(q, groups, rows, num_rows, stride, width, scores,
                                              score_stride);
}

void WeightedRows(const float* weights, int64_t weight_stride, int64_t groups, const void* rows,
                  bool bf16, int64_t num_rows, int64_t stride, int64_t width, float* out) {
  (bf16 ? WeightedRowsOf<true> : WeightedRowsOf<false>)(weights, weight_stride, groups, rows,
                                                        num_rows, stride, width, out);
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
void DotRows(const float* q, int64_t groups, const void* rows, bool bf16, int64_t num_rows,
             int64_t stride, int64_t width, float* scores, int64_t score_stride) {
  HWY_DYNAMIC_DISPATCH(DotRows)
  (q, groups, rows, bf16, num_rows, stride, width, scores, score_stride);
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
