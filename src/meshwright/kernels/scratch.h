// Aligned: memory that a thread of a kernel works in.
#ifndef MESHWRIGHT_KERNELS_SCRATCH_H_
#define MESHWRIGHT_KERNELS_SCRATCH_H_

#include <hwy/aligned_allocator.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace mw::kernels {

// An array for vector instructions that grows and is never initialized.
template <typename T>
class Aligned {
 public:
  // At least `n` elements; what was there before may be gone.
  T* Get(int64_t n) {
    if (n > size_) {
      data_ = hwy::AllocateAligned<T>(static_cast<size_t>(n));
      if (data_ == nullptr) throw std::bad_alloc();
      size_ = n;
    }
    return data_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<T[]> data_;
  int64_t size_ = 0;
};

}  // namespace mw::kernels

#endif  // MESHWRIGHT_KERNELS_SCRATCH_H_
