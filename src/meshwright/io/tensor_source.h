// TensorSource: named tensors from whatever file holds them.
#ifndef MESHWRIGHT_IO_TENSOR_SOURCE_H_
#define MESHWRIGHT_IO_TENSOR_SOURCE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/dtype.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/core/tensor_type.h"

namespace mw::io {

struct TensorInfo {
  DType dtype = DType::kF32;  // of what Read returns
  Dims dims;
  std::string stored_as;  // the file's own name of the type: "BF16", "Q4_1"
};

// A tensor that a writer is going to get.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Dims dims;
};

// Read-only and safe to use from several threads at once.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // File or folder, for messages.
  virtual const std::string& path() const = 0;
  // Sorted.
  virtual const std::vector<std::string>& names() const = 0;
  // Errors: NotFound naming the file and the nearest name it has.
  virtual absl::StatusOr<TensorInfo> info(std::string_view name) const = 0;
  // A view of the mapped file where the bytes are usable as they are; else a
  // converted (dequantized, realigned) copy. The tensor keeps the file mapped.
  virtual absl::StatusOr<HostTensor> Read(std::string_view name) const = 0;
  // As Read, converted to `dtype` straight into `out`: no copy of the whole tensor in
  // between (unless the file has it unaligned).
  // REQUIRES: `out` is aligned for `dtype`.
  // Errors: also InvalidArgument when `out` has not the tensor's size.
  virtual absl::Status ReadInto(std::string_view name, DType dtype, std::span<std::byte> out) const;

  bool Contains(std::string_view name) const;

 protected:
  absl::Status NoSuchTensor(std::string_view name) const;
  // InvalidArgument unless `out` has the bytes of `dtype`s of these dims.
  absl::Status CheckSize(std::string_view name, const Dims& dims, DType dtype,
                         std::span<std::byte> out) const;
};

// Opens a Hugging Face folder, a .safetensors file, a *.safetensors.index.json or
// a GGUF file; which one is decided by the content, not by the name.
absl::StatusOr<std::shared_ptr<TensorSource>> OpenTensorSource(const std::string& path);

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_TENSOR_SOURCE_H_
