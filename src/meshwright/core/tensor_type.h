// TensorType: dtype, global shape and sharding of a value.
#ifndef MESHWRIGHT_CORE_TENSOR_TYPE_H_
#define MESHWRIGHT_CORE_TENSOR_TYPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "meshwright/core/dtype.h"
#include "meshwright/core/partition_spec.h"

namespace mw {

// Sizes of a tensor, outermost first. Empty for a scalar.
using Dims = std::vector<int64_t>;

// Product of the sizes; 1 for a scalar.
int64_t NumElements(const Dims& dims);

// "[4,512]".
std::string DimsToString(const Dims& dims);

struct TensorType {
  DType dtype = DType::kF32;
  Dims dims;
  PartitionSpec spec;

  TensorType() = default;
  TensorType(DType dtype, Dims dims, PartitionSpec spec = {})
      : dtype(dtype), dims(std::move(dims)), spec(std::move(spec)) {}

  int rank() const { return static_cast<int>(dims.size()); }
  int64_t num_elements() const { return NumElements(dims); }
  int64_t num_bytes() const { return num_elements() * static_cast<int64_t>(ByteSize(dtype)); }

  // "bf16[8,4096]", with the spec appended where it is not replicated.
  std::string ToString() const;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};

}  // namespace mw

#endif  // MESHWRIGHT_CORE_TENSOR_TYPE_H_
