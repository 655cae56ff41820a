// Host memory that a device may take over.
#ifndef MESHWRIGHT_CORE_EXCLUSIVE_TENSOR_H_
#define MESHWRIGHT_CORE_EXCLUSIVE_TENSOR_H_

#include "meshwright/core/host_tensor.h"

namespace mw {

// Whether `tensor` alone holds its bytes and they may be written: they came from
// HostTensor::Empty or Zeros, and no copy or view shares them. Bytes of a mapped file
// never are.
bool IsExclusive(const HostTensor& tensor);

}  // namespace mw

#endif  // MESHWRIGHT_CORE_EXCLUSIVE_TENSOR_H_
