// What the handlers of kernels have in common.
#ifndef MESHWRIGHT_KERNELS_HANDLER_UTIL_H_
#define MESHWRIGHT_KERNELS_HANDLER_UTIL_H_

#include <exception>
#include <string>

#include "meshwright/core/dtype.h"
#include "xla/ffi/api/ffi.h"

namespace mw::kernels {

// Whether kernels compute with it.
inline bool IsKnown(xla::ffi::DataType type) {
  return type == xla::ffi::F32 || type == xla::ffi::BF16;
}

// REQUIRES: IsKnown(type).
inline DType DTypeOf(xla::ffi::DataType type) {
  return type == xla::ffi::BF16 ? DType::kBF16 : DType::kF32;
}

// Whether two buffers have as many elements of one type.
template <typename A, typename B>
bool IsLike(const A& a, const B& b) {
  return a.element_type() == b.element_type() && a.element_count() == b.element_count();
}

// Calls body(); an exception is the call's error.
template <typename Body>
xla::ffi::Error Guarded(const char* kernel, const Body& body) {
  try {
    body();
  } catch (const std::exception& e) {
    return xla::ffi::Error::Internal(std::string(kernel) + ": " + e.what());
  }
  return xla::ffi::Error::Success();
}

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_HANDLER_UTIL_H_
