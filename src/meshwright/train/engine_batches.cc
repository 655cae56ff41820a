// Batches on their way to the devices.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/train/engine_impl.h"
#include "meshwright/train/make_batch.h"

namespace mw::train {

namespace {

// The i-th tensor of BatchTensors; null when the batch lacks it.
const HostTensor* BatchTensor(const data::Batch& batch, size_t i, const std::string& name) {
  const std::array<const HostTensor*, kNumPackedTensors> packed = {
      &batch.tokens, &batch.targets, &batch.loss_mask, &batch.segment_ids, &batch.positions};
  if (i < packed.size()) return packed[i];
  const auto it = batch.extras.find(name);
  return it == batch.extras.end() ? nullptr : &it->second;
}

}  // namespace

absl::StatusOr<BatchShape> Engine::Impl::CheckBatch(const data::Batch& batch,
                                                    size_t num_tensors) const {
  const Dims& dims = batch.tokens.dims();
  if (dims.size() != 2 || dims[0] < 1 || dims[1] < 1) {
    return absl::InvalidArgumentError(fmt::format(
        "batch tensor tokens has dims {} but must be [rows, tokens]", DimsToString(dims)));
  }
  for (size_t i = 0; i < num_tensors; ++i) {
    const BatchTensorSpec& spec = batch_specs_[i];
    const HostTensor* const tensor = BatchTensor(batch, i, spec.name);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("the batch has no tensor {}, which the loss needs", spec.name));
    }
    MW_RETURN_IF_ERROR(
        CheckTensor("batch tensor", spec.name, *tensor, spec.Type(dims[0], dims[1])));
  }
  MW_RETURN_IF_ERROR(CheckSegmentIds("the batch", batch.segment_ids));
  MW_RETURN_IF_ERROR(CheckBatchSplits(dims[0], dims[1], placement_, mesh_));
  // Without the loss's own tensors the batch is not for the loss.
  if (num_tensors == batch_specs_.size()) MW_RETURN_IF_ERROR(loss_->CheckBatch(batch));
  return BatchShape{dims[0], dims[1]};
}

absl::StatusOr<std::vector<DeviceArray>> Engine::Impl::MoveBatch(const data::Batch& batch,
                                                                 size_t num_tensors) const {
  std::vector<DeviceArray> arrays;
  for (size_t i = 0; i < num_tensors; ++i) {
    const HostTensor& tensor = *BatchTensor(batch, i, batch_specs_[i].name);
    const TensorType type(tensor.dtype(), tensor.dims(),
                          BatchTensorPlacement(batch_specs_[i], placement_));
    MW_ASSIGN_OR_RETURN(DeviceArray array,
                        Upload(tensor, type, runtime::UploadSemantics::kAsyncCopy));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

absl::Status Engine::Impl::UploadBatch(const data::Batch& batch, size_t num_tensors) {
  MW_ASSIGN_OR_RETURN(std::vector<DeviceArray> arrays, MoveBatch(batch, num_tensors));
  for (size_t i = 0; i < arrays.size(); ++i) batch_[i].Take(std::move(arrays[i]));
  return absl::OkStatus();
}

absl::Status Engine::Impl::UploadBatches(std::span<const data::Batch> batches) {
  for (size_t i = 0; i < batch_specs_.size(); ++i) {
    const std::string& name = batch_specs_[i].name;
    const HostTensor& first = *BatchTensor(batches[0], i, name);
    Dims dims = first.dims();
    dims.insert(dims.begin(), static_cast<int64_t>(batches.size()));
    HostTensor stacked = HostTensor::Zeros(first.dtype(), dims);
    std::byte* to = stacked.mutable_bytes();
    for (const data::Batch& batch : batches) {
      const HostTensor& from = *BatchTensor(batch, i, name);
      to = std::copy_n(from.bytes(), from.num_bytes(), to);
    }
    const TensorType type(first.dtype(), dims,
                          StackedSpec(BatchTensorPlacement(batch_specs_[i], placement_)));
    MW_ASSIGN_OR_RETURN(DeviceArray array,
                        Upload(stacked, type, runtime::UploadSemantics::kAsyncCopy));
    batches_[i].Take(std::move(array));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PreparedInput::Data>> Engine::Impl::Prepare(
    const data::Batch& batch) const {
  auto input = std::make_unique<PreparedInput::Data>();
  CpuTimer timer(&input->host_s);
  MW_ASSIGN_OR_RETURN(input->shape, CheckBatch(batch));
  MW_ASSIGN_OR_RETURN(input->tensors, MoveBatch(batch, batch_specs_.size()));
  input->engine = identity_;
  input->num_tokens = batch.num_tokens;
  input->num_pairs = NumAttendedPairs(batch);
  return input;
}

}  // namespace mw::train
