// Checks shared by the writers that take tensors one by one, in a declared order.
#ifndef MESHWRIGHT_IO_TENSOR_SEQUENCE_H_
#define MESHWRIGHT_IO_TENSOR_SEQUENCE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/io/tensor_source.h"

namespace mw::io {

// InvalidArgument unless `name` and `tensor` are what `specs[next]` declares.
absl::Status CheckNextTensor(const std::string& path, const std::vector<TensorSpec>& specs,
                             size_t next, std::string_view name, const HostTensor& tensor);

// FailedPrecondition naming `specs[next]` unless all are written.
absl::Status CheckAllWritten(const std::string& path, const std::vector<TensorSpec>& specs,
                             size_t next);

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_TENSOR_SEQUENCE_H_
