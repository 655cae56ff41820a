#include "meshwright/io/tensor_sequence.h"

#include <fmt/format.h>

namespace mw::io {

absl::Status CheckNextTensor(const std::string& path, const std::vector<TensorSpec>& specs,
                             size_t next, std::string_view name, const HostTensor& tensor) {
  if (next >= specs.size()) {
    return absl::InvalidArgumentError(
        fmt::format("cannot write tensor \"{}\" to {}: all {} declared tensors are written", name,
                    path, specs.size()));
  }
  const TensorSpec& spec = specs[next];
  if (name != spec.name) {
    return absl::InvalidArgumentError(fmt::format(
        "cannot write tensor \"{}\" to {}: the next in order is \"{}\"", name, path, spec.name));
  }
  if (tensor.dtype() != spec.dtype || tensor.dims() != spec.dims) {
    return absl::InvalidArgumentError(
        fmt::format("cannot write tensor \"{}\" to {}: got {}{}, declared as {}{}", name, path,
                    DTypeName(tensor.dtype()), DimsToString(tensor.dims()), DTypeName(spec.dtype),
                    DimsToString(spec.dims)));
  }
  return absl::OkStatus();
}

absl::Status CheckAllWritten(const std::string& path, const std::vector<TensorSpec>& specs,
                             size_t next) {
  if (next == specs.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("cannot finish {}: tensor \"{}\" is not written ({} of {} are)", path,
                  specs[next].name, next, specs.size()));
}

}  // namespace mw::io
