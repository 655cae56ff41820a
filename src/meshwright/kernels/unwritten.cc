// meshwright.unwritten: memory for what a program is about to write, of which no page is touched.
// XLA's own way, a tensor of zeros, costs as much as writing it.
#include <string_view>

#include "meshwright/kernels/handlers.h"
#include "xla/ffi/api/ffi.h"

namespace mw::kernels {
namespace {

namespace ffi = xla::ffi;

// Its name tells one from another, so that XLA takes no two for the same.
ffi::Error Unwritten(ffi::Result<ffi::AnyBuffer> /*out*/, std::string_view /*name*/) {
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER(kUnwritten, Unwritten,
                       ffi::Ffi::Bind().Ret<ffi::AnyBuffer>().Attr<std::string_view>("name"));

}  // namespace

XLA_FFI_Error* UnwrittenHandler(XLA_FFI_CallFrame* frame) { return kUnwritten(frame); }

}  // namespace mw::kernels
