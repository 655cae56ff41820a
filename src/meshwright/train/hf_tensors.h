// Parameters as Hugging Face's tensors and back: layers apart, by name.
#ifndef MESHWRIGHT_TRAIN_HF_TENSORS_H_
#define MESHWRIGHT_TRAIN_HF_TENSORS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/nn/param.h"

namespace mw::train {

// `tensors`, one for each of `specs`, under their Hugging Face names: of stacked ones views,
// layer by layer.
std::map<std::string, HostTensor> UnstackHfTensors(const std::vector<nn::ParamSpec>& specs,
                                                   const std::vector<HostTensor>& tensors);

// The inverse, in `dtype`.
// Errors: InvalidArgument naming the tensor that is missing, unknown, of other dims or no float.
absl::StatusOr<std::vector<HostTensor>> StackHfTensors(
    const std::vector<nn::ParamSpec>& specs, const std::map<std::string, HostTensor>& tensors,
    DType dtype);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_HF_TENSORS_H_
