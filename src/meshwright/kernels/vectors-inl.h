// Vectors of Highway of float32: bf16 in and out, sums of lanes. Included once for each instruction
// set, after hwy/highway.h.
#if defined(MESHWRIGHT_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHWRIGHT_KERNELS_VECTORS_INL_H_
#undef MESHWRIGHT_KERNELS_VECTORS_INL_H_
#else
#define MESHWRIGHT_KERNELS_VECTORS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "meshwright/base/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace mw::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;

// Asks memory for a line that is wanted soon, into the second cache: the first one is full of what
// is being computed, and has fewer lines on their way at a time.
HWY_INLINE void PrefetchToL2(const void* line) {
  __builtin_prefetch(line, /*rw=*/0, /*locality=*/2);
}

// The bits of v in bf16, in the upper halves. Rounds to nearest even, as every conversion to bf16
// does; NaN stays NaN.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<F32>> NarrowBits(Vec v) {
  const hn::RebindToUnsigned<F32> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
}

HWY_INLINE void StoreNarrow(Vec v, uint16_t* out) {
  const hn::Rebind<uint16_t, F32> dn;
  const hn::RebindToSigned<F32> di;
  hn::StoreU(hn::DemoteTo(dn, hn::BitCast(di, hn::ShiftRight<16>(NarrowBits(v)))), dn, out);
}

// A number of float32, or of bf16 widened, and a vector of them.
HWY_INLINE float Widened(float x) { return x; }
HWY_INLINE float Widened(uint16_t x) { return BFloat16ToFloat(x); }
HWY_INLINE Vec LoadWide(const float* in) { return hn::LoadU(F32(), in); }
HWY_INLINE Vec LoadWide(const uint16_t* in) {
  const hn::Rebind<uint16_t, F32> dn;
  const hn::RebindToUnsigned<F32> du;
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dn, in))));
}

// The first n numbers of a vector, then zeros; reads nothing beyond them. (MaskedLoad may, and on
// some instruction sets faults where `in` is not aligned.)
HWY_INLINE Vec LoadFirst(const float* in, int64_t n) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (n >= lanes) return hn::LoadU(d, in);
  HWY_ALIGN float first[HWY_MAX_BYTES / sizeof(float)] = {};
  std::copy_n(in, n, first);
  return hn::Load(d, first);
}

// v as bf16 holds it.
HWY_INLINE Vec RoundToNarrow(Vec v) {
  const hn::RebindToUnsigned<F32> du;
  return hn::BitCast(F32(), hn::And(NarrowBits(v), hn::Set(du, 0xFFFF0000U)));
}

// x, which the compiler does not read from memory again for each use: the units that load would be
// what decides.
HWY_INLINE Vec InRegister(Vec x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && HWY_TARGET != HWY_SCALAR
  __asm__("" : "+v"(x.raw));
#endif
  return x;
}

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

}  // namespace mw::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MESHWRIGHT_KERNELS_VECTORS_INL_H_
