#include "meshwright/kernels/token_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "meshwright/core/philox.h"
#include "meshwright/kernels/highway_targets.h"

// Compiled once for each instruction set; HWY_DYNAMIC_DISPATCH takes the best that there is.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "meshwright/kernels/token_row.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "meshwright/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mw::kernels::HWY_NAMESPACE {

using U32 = hn::RebindToUnsigned<F32>;
using Words = hn::Vec<U32>;

#if HWY_TARGET != HWY_SCALAR
// The high and low words of a * b, lane by lane.
HWY_INLINE void Product(Words a, Words b, Words* high, Words* low) {
  const U32 d;
  const hn::Repartition<uint64_t, U32> wide;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))),
                               hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, b))));
  *low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  *high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}
#endif

// The words of the counters (block, id, step, site), (block + 1, …), … with core/philox.h's
// numbers.
HWY_INLINE void RandomWords(const TokenRow& row, uint32_t block, Words (&words)[4]) {
  const U32 d;
#if HWY_TARGET == HWY_SCALAR
  const PhiloxCounter scalars =
      Philox4x32({block, row.id, row.step, row.site}, {row.seed[0], row.seed[1]});
  for (int w = 0; w < 4; ++w) words[w] = hn::Set(d, scalars[static_cast<size_t>(w)]);
#else
  words[0] = hn::Iota(d, block);
  words[1] = hn::Set(d, row.id);
  words[2] = hn::Set(d, row.step);
  words[3] = hn::Set(d, row.site);
  const Words m0 = hn::Set(d, 0xD2511F53U), m1 = hn::Set(d, 0xCD9E8D57U);
  uint32_t k0 = row.seed[0], k1 = row.seed[1];
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9U, k1 += 0xBB67AE85U) {
    Words high0, low0, high1, low1;
    Product(words[0], m0, &high0, &low0);
    Product(words[2], m1, &high1, &low1);
    words[0] = hn::Xor(hn::Xor(high1, words[1]), hn::Set(d, k0));
    words[1] = low1;
    words[2] = hn::Xor(hn::Xor(high0, words[3]), hn::Set(d, k1));
    words[3] = low0;
  }
#endif
}

// Standard Gumbel noise of random words, as ops::Gumbel makes it.
HWY_INLINE Vec NoiseOf(Words bits) {
  const F32 d;
  const hn::RebindToSigned<F32> whole;
  const Vec k = hn::ConvertTo(d, hn::BitCast(whole, hn::ShiftRight<9>(bits)));
  const Vec u = hn::Mul(hn::Add(k, hn::Set(d, 0.5F)), hn::Set(d, 0x1p-23F));
  return hn::Neg(hn::Log(d, hn::Neg(hn::Log(d, u))));
}

// The largest value so far of each lane, where it was first, and the largest logit. (Not a struct:
// its constructor would be compiled for the baseline, which cannot have Arm's vectors inlined.)
HWY_INLINE void Take(Vec logits, Vec noise, Words at, hn::Mask<F32> counts, Vec temperature,
                     Vec* largest, Words* at_largest, Vec* largest_logit) {
  const F32 d;
  const Vec infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  Vec value = hn::Add(hn::Div(logits, temperature), noise);
  // A NaN counts as infinity.
  value = hn::IfThenElse(hn::IsNaN(value), infinity, value);
  const hn::Mask<F32> more = hn::And(counts, hn::Gt(value, *largest));
  *largest = hn::IfThenElse(more, value, *largest);
  *at_largest = hn::IfThenElse(hn::RebindMask(U32(), more), at, *at_largest);
  *largest_logit = hn::IfThenElse(counts, hn::Max(*largest_logit, logits), *largest_logit);
}

// exp(logits / temperature - shift), summed.
HWY_INLINE float SumOfExps(const TokenRow& row, float shift) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec temperature = hn::Set(d, row.log_prob_temperature), less = hn::Set(d, shift);
  Vec sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t v = 0;
  for (; v + 4 * lanes <= row.vocab; v += 4 * lanes) {
    for (int part = 0; part < 4; ++part) {
      const Vec logits = hn::LoadU(d, row.logits + v + part * lanes);
      sums[part] = hn::Add(sums[part], hn::Exp(d, hn::Sub(hn::Div(logits, temperature), less)));
    }
  }
  for (; v < row.vocab; v += lanes) {
    const hn::Mask<F32> counts = hn::FirstN(d, static_cast<size_t>(std::min(lanes, row.vocab - v)));
    const Vec exps =
        hn::Exp(d, hn::Sub(hn::Div(LoadFirst(row.logits + v, row.vocab - v), temperature), less));
    sums[0] = hn::Add(sums[0], hn::IfThenElseZero(counts, exps));
  }
  return hn::GetLane(
      hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

TokenChoice Sample(const TokenRow& row) {
  const F32 d;
  const U32 du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const Vec temperature = hn::Set(d, row.temperature);
  // Word w of block b is the noise of token w * blocks + b.
  const int64_t blocks = (row.vocab + 3) / 4;
  Vec largest[4] = {lowest, lowest, lowest, lowest}, logit = lowest;
  Words at_largest[4];
  for (int w = 0; w < 4; ++w) {
    at_largest[w] = hn::Set(du, static_cast<uint32_t>(std::min(w * blocks, row.vocab - 1)));
  }
  bool has_nan = false;
  for (int64_t b = 0; b < blocks; b += lanes) {
    Words words[4];
    RandomWords(row, static_cast<uint32_t>(b), words);
    for (int w = 0; w < 4; ++w) {
      const int64_t first = w * blocks + b;
      const int64_t end = std::min((w + 1) * blocks, row.vocab);
      if (first >= end) continue;
      const hn::Mask<F32> counts = hn::FirstN(d, static_cast<size_t>(std::min(lanes, end - first)));
      const Vec logits = LoadFirst(row.logits + first, end - first);
      has_nan = has_nan || !hn::AllFalse(d, hn::IsNaN(logits));
      Take(logits, NoiseOf(words[w]), hn::Iota(du, static_cast<uint32_t>(first)), counts,
           temperature, &largest[w], &at_largest[w], &logit);
    }
  }
  // Of equal ones the first.
  constexpr size_t kMostLanes = HWY_MAX_BYTES / sizeof(float);
  HWY_ALIGN float values[kMostLanes];
  HWY_ALIGN uint32_t at[kMostLanes];
  float most = -std::numeric_limits<float>::infinity();
  auto token = static_cast<uint32_t>(row.vocab);
  for (int w = 0; w < 4; ++w) {
    hn::Store(largest[w], d, values);
    hn::Store(at_largest[w], du, at);
    for (int64_t i = 0; i < lanes; ++i) {
      if (values[i] > most || (values[i] == most && at[i] < token)) {
        most = values[i];
        token = at[i];
      }
    }
  }
  if (has_nan) {
    return {static_cast<int32_t>(token), std::numeric_limits<float>::quiet_NaN()};
  }
  const float shift = hn::GetLane(hn::MaxOfLanes(d, logit)) / row.log_prob_temperature;
  const float own = row.logits[token] / row.log_prob_temperature - shift;
  return {static_cast<int32_t>(token), own - std::log(SumOfExps(row, shift))};
}

}  // namespace mw::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mw::kernels {

HWY_EXPORT(Sample);

TokenChoice SampleTokenOf(const TokenRow& row) { return HWY_DYNAMIC_DISPATCH(Sample)(row); }

}  // namespace mw::kernels
#endif  // HWY_ONCE
