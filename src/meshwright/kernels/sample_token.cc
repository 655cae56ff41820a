// meshwright.sample_token: a token of each row by its probability. ops/sample_token.h says what it
// computes.
#include "meshwright/kernels/handler_util.h"
#include "meshwright/kernels/handlers.h"
#include "meshwright/kernels/parallel_for.h"
#include "meshwright/kernels/token_row.h"
#include "xla/ffi/api/ffi.h"

namespace mw::kernels {
namespace {

namespace ffi = xla::ffi;

ffi::Error SampleToken(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> logits,
                       ffi::Buffer<ffi::U32> ids, ffi::Buffer<ffi::U32> steps,
                       ffi::Buffer<ffi::U32> seed, ffi::Buffer<ffi::F32> temperature,
                       ffi::Buffer<ffi::F32> log_prob_temperature,
                       ffi::ResultBuffer<ffi::S32> tokens, ffi::ResultBuffer<ffi::F32> log_probs,
                       int64_t site) {
  const auto dims = logits.dimensions();
  const bool fit = dims.size() == 2 && dims[1] > 0 && seed.element_count() == 2 &&
                   temperature.element_count() == 1 && log_prob_temperature.element_count() == 1;
  const auto rows = static_cast<size_t>(fit ? dims[0] : 0);
  if (!fit || ids.element_count() != rows || steps.element_count() != rows ||
      tokens->element_count() != rows || log_probs->element_count() != rows) {
    return ffi::Error::InvalidArgument("meshwright.sample_token: operands do not fit");
  }
  return Guarded("meshwright.sample_token", [&] {
    ParallelFor(pool, dims[0], [&](int64_t row) {
      const TokenChoice choice =
          SampleTokenOf({.logits = logits.typed_data() + row * dims[1],
                         .vocab = dims[1],
                         .seed = {seed.typed_data()[0], seed.typed_data()[1]},
                         .id = ids.typed_data()[row],
                         .step = steps.typed_data()[row],
                         .site = static_cast<uint32_t>(site),
                         .temperature = temperature.typed_data()[0],
                         .log_prob_temperature = log_prob_temperature.typed_data()[0]});
      tokens->typed_data()[row] = choice.token;
      log_probs->typed_data()[row] = choice.log_prob;
    });
  });
}

XLA_FFI_DEFINE_HANDLER(kSampleToken, SampleToken,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::Buffer<ffi::F32>>()
                           .Arg<ffi::Buffer<ffi::U32>>()
                           .Arg<ffi::Buffer<ffi::U32>>()
                           .Arg<ffi::Buffer<ffi::U32>>()
                           .Arg<ffi::Buffer<ffi::F32>>()
                           .Arg<ffi::Buffer<ffi::F32>>()
                           .Ret<ffi::Buffer<ffi::S32>>()
                           .Ret<ffi::Buffer<ffi::F32>>()
                           .Attr<int64_t>("site"));

}  // namespace

XLA_FFI_Error* SampleTokenHandler(XLA_FFI_CallFrame* frame) { return kSampleToken(frame); }

}  // namespace mw::kernels
