// What XLA calls for the custom calls `meshwright.*`. The ops that write such calls say what
// operands and attributes they have: ops/matmul_kernel.cc, ops/quantized_dot.cc,
// ops/sample_token.cc,
// ops/attention_kernel.cc, ops/cached_attention.cc, ops/scan.cc, ops/sum_of_squares.cc,
// ops/adamw.cc.
#ifndef MESHWRIGHT_KERNELS_HANDLERS_H_
#define MESHWRIGHT_KERNELS_HANDLERS_H_

#include "xla/ffi/api/c_api.h"

namespace mw::kernels {

XLA_FFI_Error* MatmulHandler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* QuantizedMatmulHandler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* SampleTokenHandler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* CachedAttentionHandler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* AttentionHandler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* AttentionGradHandler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* UnwrittenHandler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* SumOfSquaresHandler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* AdamWHandler(XLA_FFI_CallFrame* frame);

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_HANDLERS_H_
