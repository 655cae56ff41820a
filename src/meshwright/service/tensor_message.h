// Tensors and batches as messages.
#ifndef MESHWRIGHT_SERVICE_TENSOR_MESSAGE_H_
#define MESHWRIGHT_SERVICE_TENSOR_MESSAGE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "proto/meshwright/v1/trainer.pb.h"

namespace mw::service {

// A copy of the message's bytes. Errors: InvalidArgument naming `name` for an unknown dtype, for
// dims that are negative or too many, and for another number of bytes than they say.
absl::StatusOr<HostTensor> ToTensor(const std::string& name, const meshwright::v1::Tensor& message);
// Errors: as ToTensor.
absl::StatusOr<std::map<std::string, HostTensor>> ToTensors(const meshwright::v1::Batch& message);

void ToMessage(const HostTensor& tensor, meshwright::v1::Tensor& message);

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_TENSOR_MESSAGE_H_
