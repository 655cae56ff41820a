#include "meshwright/service/tensor_message.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/checked_size.h"

namespace mw::service {

static_assert(std::endian::native == std::endian::little, "tensors travel little-endian");

namespace {

constexpr int kMostDims = 8;

}  // namespace

absl::StatusOr<HostTensor> ToTensor(const std::string& name,
                                    const meshwright::v1::Tensor& message) {
  const auto invalid = [&](const std::string& reason) {
    return absl::InvalidArgumentError(fmt::format("tensor \"{}\" {}", Excerpt(name), reason));
  };
  const std::optional<DType> dtype = ParseDType(message.dtype());
  if (!dtype) {
    return invalid(
        fmt::format("has dtype \"{}\"; it can be f32, s32, bf16, …", Excerpt(message.dtype())));
  }
  if (message.shape_size() > kMostDims) {
    return invalid(
        fmt::format("has {} dims; at most {} are taken", message.shape_size(), kMostDims));
  }
  const Dims dims(message.shape().begin(), message.shape().end());
  for (const int64_t dim : dims) {
    if (dim < 0) return invalid(fmt::format("has shape {}", DimsToString(dims)));
  }
  const std::optional<uint64_t> bytes = io::CheckedProduct(dims, ByteSize(*dtype));
  if (!bytes || *bytes != message.data().size()) {
    return invalid(fmt::format("is {} and has {} bytes", TensorType(*dtype, dims).ToString(),
                               message.data().size()));
  }
  HostTensor tensor = HostTensor::Empty(*dtype, dims);
  if (*bytes > 0) std::memcpy(tensor.mutable_bytes(), message.data().data(), *bytes);
  return tensor;
}

absl::StatusOr<std::map<std::string, HostTensor>> ToTensors(const meshwright::v1::Batch& message) {
  std::map<std::string, HostTensor> tensors;
  for (const auto& [name, tensor] : message.tensors()) {
    MW_ASSIGN_OR_RETURN(tensors[name], ToTensor(name, tensor));
  }
  return tensors;
}

void ToMessage(const HostTensor& tensor, meshwright::v1::Tensor& message) {
  message.set_dtype(std::string(DTypeName(tensor.dtype())));
  for (const int64_t dim : tensor.dims()) message.add_shape(dim);
  message.set_data(tensor.bytes(), tensor.num_bytes());
}

}  // namespace mw::service
