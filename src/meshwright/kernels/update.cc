// meshwright.sum_of_squares and meshwright.adamw: an optimizer's update in two passes over memory,
// one for the norm of all gradients and one that updates in place. ops/sum_of_squares.h and
// ops/adamw.h say what they compute.
#include <algorithm>
#include <cstring>
#include <vector>

#include "meshwright/kernels/handler_util.h"
#include "meshwright/kernels/handlers.h"
#include "meshwright/kernels/parallel_for.h"
#include "meshwright/kernels/update_rows.h"
#include "xla/ffi/api/ffi.h"

namespace mw::kernels {
namespace {

namespace ffi = xla::ffi;
using F32 = ffi::Buffer<ffi::F32>;

// Elements of a task.
constexpr int64_t kTogether = int64_t{1} << 16;

// Calls body(task, first, number) for parts of `count` elements.
template <typename Body>
void ForParts(ffi::ThreadPool& pool, int64_t count, const Body& body) {
  ParallelFor(pool, (count + kTogether - 1) / kTogether, [&](int64_t task) {
    const int64_t first = task * kTogether;
    body(task, first, std::min(kTogether, count - first));
  });
}

bool IsScalar(const F32& x) { return x.element_count() == 1; }

ffi::Error SumSquares(ffi::ThreadPool pool, F32 sums, F32 scale, ffi::Result<F32> out,
                      bool round_grad) {
  if (!IsScalar(scale) || !IsScalar(*out)) {
    return ffi::Error::InvalidArgument("meshwright.sum_of_squares: operands do not fit");
  }
  const GradientOfSum gradient{.scale = scale.typed_data()[0], .round = round_grad};
  const float* data = sums.typed_data();
  const auto count = static_cast<int64_t>(sums.element_count());
  return Guarded("meshwright.sum_of_squares", [&] {
    std::vector<double> parts(static_cast<size_t>((count + kTogether - 1) / kTogether));
    ForParts(pool, count, [&](int64_t task, int64_t first, int64_t n) {
      parts[static_cast<size_t>(task)] = SumOfSquares(data + first, n, gradient);
    });
    double total = 0;
    for (const double part : parts) total += part;
    out->typed_data()[0] = static_cast<float>(total);
  });
}

ffi::Error Update(ffi::ThreadPool pool, ffi::AnyBuffer param, F32 m, F32 v, F32 sums, F32 rate,
                  F32 m_correction, F32 v_correction, F32 scale, F32 shrink,
                  ffi::Buffer<ffi::PRED> apply, ffi::Result<ffi::AnyBuffer> param_out,
                  ffi::Result<F32> m_out, ffi::Result<F32> v_out, double b1, double b2, double eps,
                  double decay, bool round_grad) {
  const size_t count = param.element_count();
  const bool fit = IsKnown(param.element_type()) && IsLike(*param_out, param) &&
                   m.element_count() == count && v.element_count() == count &&
                   sums.element_count() == count && m_out->element_count() == count &&
                   v_out->element_count() == count && IsScalar(rate) && IsScalar(m_correction) &&
                   IsScalar(v_correction) && IsScalar(scale) && IsScalar(shrink) &&
                   apply.element_count() == 1;
  if (!fit) return ffi::Error::InvalidArgument("meshwright.adamw: operands do not fit");
  // Results alias their operands, so from == to unless the caller ignores aliases.
  const auto keep = [](const void* from, void* to, size_t bytes) {
    if (from != to) std::memcpy(to, from, bytes);
  };
  if (!apply.typed_data()[0]) {
    keep(param.untyped_data(), param_out->untyped_data(), param.size_bytes());
    keep(m.untyped_data(), m_out->untyped_data(), m.size_bytes());
    keep(v.untyped_data(), v_out->untyped_data(), v.size_bytes());
    return ffi::Error::Success();
  }
  const AdamWStep step{
      .gradient = {.scale = scale.typed_data()[0], .round = round_grad},
      .shrink = shrink.typed_data()[0],
      .rate = rate.typed_data()[0],
      .m_correction = m_correction.typed_data()[0],
      .v_correction = v_correction.typed_data()[0],
      .b1 = b1,
      .b2 = b2,
      .eps = eps,
      .decay = decay,
  };
  const bool narrow = param.element_type() == ffi::BF16;
  const size_t size = narrow ? 2 : 4;
  return Guarded("meshwright.adamw", [&] {
    ForParts(pool, static_cast<int64_t>(count), [&](int64_t, int64_t first, int64_t n) {
      const size_t at = static_cast<size_t>(first) * size;
      AdamW(step, {.param = static_cast<const char*>(param.untyped_data()) + at,
                   .m = m.typed_data() + first,
                   .v = v.typed_data() + first,
                   .sums = sums.typed_data() + first,
                   .param_out = static_cast<char*>(param_out->untyped_data()) + at,
                   .m_out = m_out->typed_data() + first,
                   .v_out = v_out->typed_data() + first,
                   .n = n,
                   .narrow = narrow});
    });
  });
}

XLA_FFI_DEFINE_HANDLER(
    kSumOfSquares, SumSquares,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<F32>().Arg<F32>().Ret<F32>().Attr<bool>(
        "round_grad"));
XLA_FFI_DEFINE_HANDLER(kUpdate, Update,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<F32>()
                           .Arg<F32>()
                           .Arg<F32>()
                           .Arg<F32>()
                           .Arg<F32>()
                           .Arg<F32>()
                           .Arg<F32>()
                           .Arg<F32>()
                           .Arg<ffi::Buffer<ffi::PRED>>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<F32>()
                           .Ret<F32>()
                           .Attr<double>("b1")
                           .Attr<double>("b2")
                           .Attr<double>("eps")
                           .Attr<double>("decay")
                           .Attr<bool>("round_grad"));

}  // namespace

XLA_FFI_Error* SumOfSquaresHandler(XLA_FFI_CallFrame* frame) { return kSumOfSquares(frame); }
XLA_FFI_Error* AdamWHandler(XLA_FFI_CallFrame* frame) { return kUpdate(frame); }

}  // namespace mw::kernels
