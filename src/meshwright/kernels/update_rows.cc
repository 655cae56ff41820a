#include "meshwright/kernels/update_rows.h"

#include <algorithm>
#include <cstring>

#include "meshwright/kernels/highway_targets.h"

// Compiled once for each instruction set; HWY_DYNAMIC_DISPATCH takes the best that there is.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "meshwright/kernels/update_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "meshwright/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mw::kernels::HWY_NAMESPACE {

template <bool kRound>
HWY_INLINE Vec Gradient(const float* sums, Vec scale) {
  const Vec scaled = hn::Mul(hn::LoadU(F32(), sums), scale);
  return kRound ? RoundToNarrow(scaled) : scaled;
}

template <bool kRound>
double SumOfSquaresOf(const float* HWY_RESTRICT sums, int64_t n, float factor) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec scale = hn::Set(d, factor);
  Vec total[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    for (int64_t j = 0; j < 4; ++j) {
      const Vec g = Gradient<kRound>(sums + i + j * lanes, scale);
      total[j] = hn::MulAdd(g, g, total[j]);
    }
  }
  for (; i < n; i += lanes) {
    // Zeros after the last ones.
    HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(rest, sums + i, sizeof(float) * static_cast<size_t>(std::min(lanes, n - i)));
    const Vec g = Gradient<kRound>(rest, scale);
    // Zero times an infinite scale would be NaN.
    const Vec counted =
        hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(std::min(lanes, n - i))), g);
    total[0] = hn::MulAdd(counted, counted, total[0]);
  }
  const Vec sum = hn::Add(hn::Add(total[0], total[1]), hn::Add(total[2], total[3]));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

double SumOfSquares(const float* sums, int64_t n, const GradientOfSum& gradient) {
  return (gradient.round ? SumOfSquaresOf<true> : SumOfSquaresOf<false>)(sums, n, gradient.scale);
}

// As the op's plain form has it, rounding after rounding: no multiplication is joined with an
// addition, so that instruction sets with and without such instructions agree.
template <bool kRound, bool kNarrow>
class AdamWOf {
 public:
  explicit AdamWOf(const AdamWStep& s)
      : scale_(Splat(s.gradient.scale)),
        shrink_(Splat(s.shrink)),
        rate_(Splat(s.rate)),
        m_correction_(Splat(s.m_correction)),
        v_correction_(Splat(s.v_correction)),
        b1_(Splat(s.b1)),
        rest1_(Splat(1 - s.b1)),
        b2_(Splat(s.b2)),
        rest2_(Splat(1 - s.b2)),
        eps_(Splat(s.eps)),
        decay_(Splat(s.decay)),
        decays_(s.decay != 0) {}

  void Run(const AdamWRun& run) const {
    const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
    constexpr size_t kSize = kNarrow ? sizeof(uint16_t) : sizeof(float);
    const auto at = [&](int64_t i) {
      AdamWRun one = run;
      one.param = static_cast<const char*>(run.param) + static_cast<size_t>(i) * kSize;
      one.param_out = static_cast<char*>(run.param_out) + static_cast<size_t>(i) * kSize;
      one.m += i, one.v += i, one.sums += i, one.m_out += i, one.v_out += i;
      return one;
    };
    int64_t i = 0;
    for (; i + lanes <= run.n; i += lanes) Vector(at(i));
    if (i == run.n) return;
    // The last few, in a vector of their own.
    constexpr size_t kMost = HWY_MAX_BYTES / sizeof(float);
    HWY_ALIGN float param[kMost] = {}, m[kMost] = {}, v[kMost] = {}, sums[kMost] = {};
    const auto left = static_cast<size_t>(run.n - i);
    const AdamWRun from = at(i);
    std::memcpy(param, from.param, left * kSize);
    std::memcpy(m, from.m, left * sizeof(float));
    std::memcpy(v, from.v, left * sizeof(float));
    std::memcpy(sums, from.sums, left * sizeof(float));
    Vector(
        {.param = param, .m = m, .v = v, .sums = sums, .param_out = param, .m_out = m, .v_out = v});
    std::memcpy(from.param_out, param, left * kSize);
    std::memcpy(from.m_out, m, left * sizeof(float));
    std::memcpy(from.v_out, v, left * sizeof(float));
  }

 private:
  static Vec Splat(double x) { return hn::Set(F32(), static_cast<float>(x)); }

  HWY_INLINE void Vector(const AdamWRun& at) const {
    const F32 d;
    const Vec g = hn::Mul(Gradient<kRound>(at.sums, scale_), shrink_);
    const Vec m = hn::Add(hn::Mul(hn::LoadU(d, at.m), b1_), hn::Mul(g, rest1_));
    const Vec v = hn::Add(hn::Mul(hn::LoadU(d, at.v), b2_), hn::Mul(hn::Mul(g, g), rest2_));
    const Vec root = hn::Add(hn::Sqrt(hn::Div(v, v_correction_)), eps_);
    const Vec p = kNarrow ? LoadWide(static_cast<const uint16_t*>(at.param))
                          : hn::LoadU(d, static_cast<const float*>(at.param));
    Vec step = hn::Div(hn::Div(m, m_correction_), root);
    if (decays_) step = hn::Add(step, hn::Mul(p, decay_));
    const Vec next = hn::Sub(p, hn::Mul(step, rate_));
    if constexpr (kNarrow) {
      StoreNarrow(next, static_cast<uint16_t*>(at.param_out));
    } else {
      hn::StoreU(next, d, static_cast<float*>(at.param_out));
    }
    hn::StoreU(m, d, at.m_out);
    hn::StoreU(v, d, at.v_out);
  }

  const Vec scale_, shrink_, rate_, m_correction_, v_correction_;
  const Vec b1_, rest1_, b2_, rest2_, eps_, decay_;
  const bool decays_;
};

void AdamW(const AdamWStep& step, const AdamWRun& run) {
  if (step.gradient.round) {
    run.narrow ? AdamWOf<true, true>(step).Run(run) : AdamWOf<true, false>(step).Run(run);
  } else {
    run.narrow ? AdamWOf<false, true>(step).Run(run) : AdamWOf<false, false>(step).Run(run);
  }
}

}  // namespace mw::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mw::kernels {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(AdamW);

double SumOfSquares(const float* sums, int64_t n, const GradientOfSum& gradient) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(sums, n, gradient);
}
void AdamW(const AdamWStep& step, const AdamWRun& run) { HWY_DYNAMIC_DISPATCH(AdamW)(step, run); }

}  // namespace mw::kernels
#endif  // HWY_ONCE
