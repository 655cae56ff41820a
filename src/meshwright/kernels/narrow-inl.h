// bf16 in vectors of Highway. Included once for each instruction set, after hwy/highway.h.
#if defined(MESHWRIGHT_KERNELS_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHWRIGHT_KERNELS_NARROW_INL_H_
#undef MESHWRIGHT_KERNELS_NARROW_INL_H_
#else
#define MESHWRIGHT_KERNELS_NARROW_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mw::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;

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

HWY_INLINE Vec LoadNarrow(const uint16_t* in) {
  const hn::Rebind<uint16_t, F32> dn;
  const hn::RebindToUnsigned<F32> du;
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dn, in))));
}

// v as bf16 holds it.
HWY_INLINE Vec RoundToNarrow(Vec v) {
  const hn::RebindToUnsigned<F32> du;
  return hn::BitCast(F32(), hn::And(NarrowBits(v), hn::Set(du, 0xFFFF0000U)));
}

}  // namespace mw::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MESHWRIGHT_KERNELS_NARROW_INL_H_
