#include "meshwright/service/weights_file.h"

#include <algorithm>
#include <utility>

#include "meshwright/base/parallel_for.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/safetensors.h"

namespace mw::service {

absl::StatusOr<std::shared_ptr<const WeightsFile>> WeightsFile::Create(
    std::map<std::string, HostTensor> weights, std::optional<DType> dtype, int64_t policy_version) {
  if (dtype) {
    std::vector<HostTensor*> tensors;
    tensors.reserve(weights.size());
    for (auto& [name, tensor] : weights) tensors.push_back(&tensor);
    ParallelFor(static_cast<int64_t>(tensors.size()), [&](int64_t i) {
      HostTensor& tensor = *tensors[static_cast<size_t>(i)];
      if (IsFloat(tensor.dtype())) tensor = tensor.ConvertTo(*dtype);
    });
  }
  std::vector<io::TensorSpec> specs;
  specs.reserve(weights.size());
  for (const auto& [name, tensor] : weights) specs.push_back({name, tensor.dtype(), tensor.dims()});
  io::SortInReferenceOrder(specs);
  auto file = std::shared_ptr<WeightsFile>(new WeightsFile());
  file->policy_version_ = policy_version;
  MW_ASSIGN_OR_RETURN(file->header_,
                      io::SafetensorsHeader(
                          "the weights", specs,
                          {{"format", "pt"}, {"policy_version", std::to_string(policy_version)}}));
  file->num_bytes_ = static_cast<int64_t>(file->header_.size());
  for (const io::TensorSpec& spec : specs) {
    file->begins_.push_back(file->num_bytes_);
    file->tensors_.push_back(weights.extract(spec.name).mapped());
    file->num_bytes_ += static_cast<int64_t>(file->tensors_.back().num_bytes());
  }
  return file;
}

std::string WeightsFile::Read(int64_t offset, int64_t most) const {
  const int64_t end = offset + std::min(most, num_bytes_ - offset);
  std::string bytes;
  bytes.reserve(static_cast<size_t>(std::max<int64_t>(end - offset, 0)));
  const auto append = [&](const char* data, int64_t begin, int64_t size) {
    const int64_t from = std::max(offset, begin), to = std::min(end, begin + size);
    if (from < to) bytes.append(data + (from - begin), static_cast<size_t>(to - from));
  };
  append(header_.data(), 0, static_cast<int64_t>(header_.size()));
  // The last one that begins at or before `offset`.
  const auto first = std::upper_bound(begins_.begin(), begins_.end(), offset);
  for (auto i = static_cast<size_t>(std::max<std::ptrdiff_t>(first - begins_.begin() - 1, 0));
       i < tensors_.size() && begins_[i] < end; ++i) {
    append(reinterpret_cast<const char*>(tensors_[i].bytes()), begins_[i],
           static_cast<int64_t>(tensors_[i].num_bytes()));
  }
  return bytes;
}

}  // namespace mw::service
