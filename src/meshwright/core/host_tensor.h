// HostTensor: a dense row-major tensor in host memory.
#ifndef MESHWRIGHT_CORE_HOST_TENSOR_H_
#define MESHWRIGHT_CORE_HOST_TENSOR_H_

#include <cstddef>
#include <memory>
#include <span>

#include "meshwright/base/check.h"
#include "meshwright/core/dtype.h"
#include "meshwright/core/tensor_type.h"

namespace mw {

// Bytes with a dtype and dims. Owning tensors are 64-byte aligned (PJRT's
// zero-copy upload needs that); a view keeps whatever owns its bytes alive, e.g.
// a mapped file. Copies share the bytes.
class HostTensor {
 public:
  HostTensor() = default;

  // Owned, uninitialized.
  static HostTensor Empty(DType dtype, Dims dims);
  // Owned, all bytes zero.
  static HostTensor Zeros(DType dtype, Dims dims);
  // Owned copy of `values` in row-major order. REQUIRES: sizes match.
  template <typename T>
  static HostTensor From(DType dtype, Dims dims, std::span<const T> values);
  // A view of `bytes` that keeps `owner` alive. Read-only by contract.
  static HostTensor View(DType dtype, Dims dims, const std::byte* bytes,
                         std::shared_ptr<const void> owner);

  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  int64_t num_elements() const { return NumElements(dims_); }
  size_t num_bytes() const { return static_cast<size_t>(num_elements()) * ByteSize(dtype_); }
  const std::byte* bytes() const { return data_; }
  std::byte* mutable_bytes() { return data_; }
  // Whatever keeps the bytes alive.
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // The elements as T. REQUIRES: sizeof(T) is the element size.
  template <typename T>
  std::span<const T> as() const {
    MW_CHECK(sizeof(T) == ByteSize(dtype_));
    return {reinterpret_cast<const T*>(data_), static_cast<size_t>(num_elements())};
  }
  template <typename T>
  std::span<T> mutable_as() {
    MW_CHECK(sizeof(T) == ByteSize(dtype_));
    return {reinterpret_cast<T*>(data_), static_cast<size_t>(num_elements())};
  }

  // A view of the same bytes with other dims of the same element count.
  HostTensor Reshape(Dims dims) const;

  // A converted copy (float formats among each other, integers to any); the same
  // tensor when the dtype is already `dtype`. bf16 and f16 round to nearest even.
  HostTensor ConvertTo(DType dtype) const;
  // As ConvertTo, into memory of the caller's. REQUIRES: `out` is aligned for `dtype`
  // and has the bytes of num_elements() of them.
  void ConvertInto(DType dtype, std::span<std::byte> out) const;

 private:
  DType dtype_ = DType::kF32;
  Dims dims_ = {0};
  std::byte* data_ = nullptr;
  std::shared_ptr<const void> owner_;
};

template <typename T>
HostTensor HostTensor::From(DType dtype, Dims dims, std::span<const T> values) {
  HostTensor t = Empty(dtype, std::move(dims));
  MW_CHECK(sizeof(T) == ByteSize(dtype));
  MW_CHECK(static_cast<int64_t>(values.size()) == t.num_elements());
  std::copy(values.begin(), values.end(), reinterpret_cast<T*>(t.data_));
  return t;
}

}  // namespace mw

#endif  // MESHWRIGHT_CORE_HOST_TENSOR_H_
