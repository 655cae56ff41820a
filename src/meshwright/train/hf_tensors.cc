#include "meshwright/train/hf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "meshwright/base/nearest_name.h"
#include "meshwright/train/load_params.h"

namespace mw::train {

std::map<std::string, HostTensor> UnstackHfTensors(const std::vector<nn::ParamSpec>& specs,
                                                   const std::vector<HostTensor>& tensors) {
  std::map<std::string, HostTensor> named;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].stacked) {
      named[specs[i].hf_names.front()] = tensors[i];
      continue;
    }
    const size_t bytes = tensors[i].num_bytes() / specs[i].hf_names.size();
    for (size_t layer = 0; layer < specs[i].hf_names.size(); ++layer) {
      named[specs[i].hf_names[layer]] =
          HostTensor::View(tensors[i].dtype(), HfDims(specs[i]), tensors[i].bytes() + layer * bytes,
                           tensors[i].owner());
    }
  }
  return named;
}

absl::StatusOr<std::vector<HostTensor>> StackHfTensors(
    const std::vector<nn::ParamSpec>& specs, const std::map<std::string, HostTensor>& tensors,
    DType dtype) {
  std::vector<HostTensor> params;
  std::set<std::string> known;
  for (const nn::ParamSpec& spec : specs) {
    HostTensor param = HostTensor::Empty(dtype, spec.dims);
    std::byte* to = param.mutable_bytes();
    for (const std::string& name : spec.hf_names) {
      known.insert(name);
      const auto it = tensors.find(name);
      if (it == tensors.end()) {
        return absl::InvalidArgumentError(fmt::format("the weights have no tensor {}", name));
      }
      const HostTensor& tensor = it->second;
      if (tensor.dims() != HfDims(spec) || !IsFloat(tensor.dtype())) {
        return absl::InvalidArgumentError(
            fmt::format("tensor {} is {}{} but must be floats {}", name, DTypeName(tensor.dtype()),
                        DimsToString(tensor.dims()), DimsToString(HfDims(spec))));
      }
      const HostTensor converted = tensor.ConvertTo(dtype);
      to = std::copy_n(converted.bytes(), converted.num_bytes(), to);
    }
    params.push_back(std::move(param));
  }
  for (const auto& [name, tensor] : tensors) {
    if (known.contains(name)) continue;
    return absl::InvalidArgumentError(
        fmt::format("the model has no tensor {}{}", name,
                    NearestNote(name, std::vector<std::string>(known.begin(), known.end()))));
  }
  return params;
}

}  // namespace mw::train
