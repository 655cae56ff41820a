#include "meshwright/core/host_tensor.h"

#include <cstdlib>
#include <cstring>

#include "meshwright/base/bfloat16.h"

namespace mw {
namespace {

constexpr size_t kAlignment = 64;

double LoadElement(const HostTensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kPred:
    case DType::kU8:
      return t.as<uint8_t>()[i];
    case DType::kS8:
      return t.as<int8_t>()[i];
    case DType::kS32:
      return t.as<int32_t>()[i];
    case DType::kS64:
      return static_cast<double>(t.as<int64_t>()[i]);
    case DType::kU32:
      return t.as<uint32_t>()[i];
    case DType::kU64:
      return static_cast<double>(t.as<uint64_t>()[i]);
    case DType::kF16:
      return Float16ToFloat(t.as<uint16_t>()[i]);
    case DType::kBF16:
      return BFloat16ToFloat(t.as<uint16_t>()[i]);
    case DType::kF32:
      return t.as<float>()[i];
    case DType::kF64:
      return t.as<double>()[i];
  }
  MW_CHECK(false);
  return 0;
}

void StoreElement(HostTensor& t, int64_t i, double v) {
  switch (t.dtype()) {
    case DType::kPred:
      t.mutable_as<uint8_t>()[i] = v != 0;
      return;
    case DType::kU8:
      t.mutable_as<uint8_t>()[i] = static_cast<uint8_t>(v);
      return;
    case DType::kS8:
      t.mutable_as<int8_t>()[i] = static_cast<int8_t>(v);
      return;
    case DType::kS32:
      t.mutable_as<int32_t>()[i] = static_cast<int32_t>(v);
      return;
    case DType::kS64:
      t.mutable_as<int64_t>()[i] = static_cast<int64_t>(v);
      return;
    case DType::kU32:
      t.mutable_as<uint32_t>()[i] = static_cast<uint32_t>(v);
      return;
    case DType::kU64:
      t.mutable_as<uint64_t>()[i] = static_cast<uint64_t>(v);
      return;
    case DType::kF16:
      t.mutable_as<uint16_t>()[i] = FloatToFloat16(static_cast<float>(v));
      return;
    case DType::kBF16:
      t.mutable_as<uint16_t>()[i] = FloatToBFloat16(static_cast<float>(v));
      return;
    case DType::kF32:
      t.mutable_as<float>()[i] = static_cast<float>(v);
      return;
    case DType::kF64:
      t.mutable_as<double>()[i] = v;
      return;
  }
}

}  // namespace

HostTensor HostTensor::Empty(DType dtype, Dims dims) {
  HostTensor t;
  t.dtype_ = dtype;
  t.dims_ = std::move(dims);
  const size_t bytes = (t.num_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, bytes == 0 ? kAlignment : bytes);
  MW_CHECK_MSG(memory != nullptr, "out of host memory");
  t.owner_ =
      std::shared_ptr<const void>(memory, [](const void* p) { std::free(const_cast<void*>(p)); });
  t.data_ = static_cast<std::byte*>(memory);
  return t;
}

HostTensor HostTensor::Zeros(DType dtype, Dims dims) {
  HostTensor t = Empty(dtype, std::move(dims));
  std::memset(t.data_, 0, t.num_bytes());
  return t;
}

HostTensor HostTensor::View(DType dtype, Dims dims, const std::byte* bytes,
                            std::shared_ptr<const void> owner) {
  HostTensor t;
  t.dtype_ = dtype;
  t.dims_ = std::move(dims);
  t.data_ = const_cast<std::byte*>(bytes);
  t.owner_ = std::move(owner);
  return t;
}

HostTensor HostTensor::Reshape(Dims dims) const {
  MW_CHECK(NumElements(dims) == num_elements());
  HostTensor t = *this;
  t.dims_ = std::move(dims);
  return t;
}

HostTensor HostTensor::ConvertTo(DType dtype) const {
  if (dtype == dtype_) return *this;
  HostTensor out = Empty(dtype, dims_);
  ConvertInto(dtype, {out.mutable_bytes(), out.num_bytes()});
  return out;
}

void HostTensor::ConvertInto(DType dtype, std::span<std::byte> bytes) const {
  HostTensor out = View(dtype, dims_, bytes.data(), nullptr);
  MW_CHECK(bytes.size() == out.num_bytes());
  const int64_t n = num_elements();
  if (n == 0) return;
  if (dtype == dtype_) {
    std::memcpy(bytes.data(), data_, bytes.size());
    return;
  }
  const auto convert = [&]<typename From, typename To>(const From* from, To* to, auto one) {
    for (int64_t i = 0; i < n; ++i) to[i] = one(from[i]);
  };
  if (dtype_ == DType::kBF16 && dtype == DType::kF32) {
    convert(as<uint16_t>().data(), out.mutable_as<float>().data(),
            [](uint16_t v) { return BFloat16ToFloat(v); });
  } else if (dtype_ == DType::kF32 && dtype == DType::kBF16) {
    convert(as<float>().data(), out.mutable_as<uint16_t>().data(),
            [](float v) { return FloatToBFloat16(v); });
  } else if (dtype_ == DType::kF16 && dtype == DType::kF32) {
    convert(as<uint16_t>().data(), out.mutable_as<float>().data(),
            [](uint16_t v) { return Float16ToFloat(v); });
  } else if (dtype_ == DType::kF32 && dtype == DType::kF16) {
    convert(as<float>().data(), out.mutable_as<uint16_t>().data(),
            [](float v) { return FloatToFloat16(v); });
  } else {
    for (int64_t i = 0; i < n; ++i) StoreElement(out, i, LoadElement(*this, i));
  }
}

}  // namespace mw
