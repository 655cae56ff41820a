#include "meshwright/core/host_tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "meshwright/base/bfloat16.h"
#include "meshwright/core/exclusive_tensor.h"

namespace mw {
namespace {

constexpr size_t kAlignment = 64;
// From here on memory comes from the kernel in huge pages: it is zero without having been
// written, and the first touch of it costs 512 times fewer page faults.
constexpr size_t kMappedBytes = size_t{4} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

// Frees what AllocateOwned gave. Its type tells owned bytes from those of a view.
class OwnedDeleter {
 public:
  // The mapping around the bytes; none when they are of malloc.
  OwnedDeleter(void* mapping, size_t mapping_bytes)
      : mapping_(mapping), mapping_bytes_(mapping_bytes) {}
  void operator()(const void* p) const {
    if (mapping_ != nullptr) {
      ::munmap(mapping_, mapping_bytes_);
    } else {
      std::free(const_cast<void*>(p));
    }
  }

 private:
  void* mapping_;
  size_t mapping_bytes_;
};

std::shared_ptr<const void> AllocateOwned(size_t bytes, bool zero) {
  if (bytes < kMappedBytes) {
    const size_t rounded = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    void* memory = std::aligned_alloc(kAlignment, rounded);
    MW_CHECK_MSG(memory != nullptr, "out of host memory");
    if (zero) std::memset(memory, 0, rounded);
    return {memory, OwnedDeleter(nullptr, 0)};
  }
  const size_t mapping_bytes = bytes + kHugePage;
  void* mapping =
      ::mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MW_CHECK_MSG(mapping != MAP_FAILED, "out of host memory");
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  void* memory = static_cast<std::byte*>(mapping) + (kHugePage - address % kHugePage) % kHugePage;
  // Only whole huge pages, or the end would take one more than it needs. A kernel without
  // them refuses, which costs time only.
  ::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return {memory, OwnedDeleter(mapping, mapping_bytes)};
}

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
  t.owner_ = AllocateOwned(t.num_bytes(), /*zero=*/false);
  t.data_ = static_cast<std::byte*>(const_cast<void*>(t.owner_.get()));
  return t;
}

HostTensor HostTensor::Zeros(DType dtype, Dims dims) {
  HostTensor t;
  t.dtype_ = dtype;
  t.dims_ = std::move(dims);
  t.owner_ = AllocateOwned(t.num_bytes(), /*zero=*/true);
  t.data_ = static_cast<std::byte*>(const_cast<void*>(t.owner_.get()));
  return t;
}

bool IsExclusive(const HostTensor& tensor) {
  return tensor.owner().use_count() == 1 &&
         std::get_deleter<OwnedDeleter>(tensor.owner()) != nullptr;
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
