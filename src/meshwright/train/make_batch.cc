#include "meshwright/train/make_batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "meshwright/base/status_macros.h"

namespace mw::train {
namespace {

std::string DimsText(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ",")); }

// The tensors of one batch, and where they are from.
class Tensors {
 public:
  Tensors(const std::string& source, const std::map<std::string, HostTensor>& tensors)
      : source_(source), tensors_(tensors) {}

  bool Contains(const std::string& name) const { return tensors_.contains(name); }

  // One of [rows, tokens], and of `dims` where they are given.
  absl::StatusOr<HostTensor> Take(const std::string& name, DType dtype, const Dims* dims) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      return absl::NotFoundError(fmt::format(
          "{} has no tensor {}; a batch has tokens, targets and loss_mask", source_, name));
    }
    const HostTensor& tensor = found->second;
    if (tensor.dtype() != dtype) {
      return absl::InvalidArgumentError(fmt::format("{}: {} must be {}, not {}", source_, name,
                                                    DTypeName(dtype), DTypeName(tensor.dtype())));
    }
    if (tensor.dims().size() != 2 || tensor.num_elements() == 0) {
      return absl::InvalidArgumentError(
          fmt::format("{}: {} must be [rows, tokens], neither of them 0, not {}", source_, name,
                      DimsText(tensor.dims())));
    }
    if (dims != nullptr && tensor.dims() != *dims) {
      return absl::InvalidArgumentError(fmt::format("{}: {} is {}, but tokens is {}", source_, name,
                                                    DimsText(tensor.dims()), DimsText(*dims)));
    }
    return tensor;
  }

  absl::StatusOr<HostTensor> TakeExtra(const BatchTensorSpec& spec, const Dims& tokens) const {
    const TensorType type = spec.Type(tokens[0], tokens[1]);
    const auto found = tensors_.find(spec.name);
    if (found == tensors_.end()) {
      return absl::NotFoundError(fmt::format("{} has no tensor {}, which the loss needs as {}",
                                             source_, spec.name, type.ToString()));
    }
    const HostTensor& tensor = found->second;
    if (tensor.dtype() != type.dtype || tensor.dims() != type.dims) {
      return absl::InvalidArgumentError(
          fmt::format("{}: {} must be {}, not {}", source_, spec.name, type.ToString(),
                      TensorType(tensor.dtype(), tensor.dims()).ToString()));
    }
    return tensor;
  }

  // Every s32 of `tensor` that `counts` says yes to is in 0 … size-1.
  template <typename Counts>
  absl::Status CheckRange(const char* name, const HostTensor& tensor, int64_t size,
                          const std::string& what, Counts counts) const {
    const auto values = tensor.as<int32_t>();
    const int64_t row_length = tensor.dims()[1];
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if ((values[i] < 0 || values[i] >= size) && counts(i)) {
        return absl::InvalidArgumentError(fmt::format("{}: {}[{},{}] is {}, outside {} of {}",
                                                      source_, name, i / row_length, i % row_length,
                                                      values[i], what, size));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckMask(const HostTensor& tensor) const {
    const auto mask = tensor.as<float>();
    const int64_t row_length = tensor.dims()[1];
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (!(mask[i] >= 0) || !std::isfinite(mask[i])) {
        return absl::InvalidArgumentError(
            fmt::format("{}: loss_mask[{},{}] is {}; a weight is finite and not negative", source_,
                        i / row_length, i % row_length, mask[i]));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::string& source_;
  const std::map<std::string, HostTensor>& tensors_;
};

HostTensor OneDocument(const Dims& dims) {
  HostTensor segments = HostTensor::Empty(DType::kS32, dims);
  for (int32_t& segment : segments.mutable_as<int32_t>()) segment = 1;
  return segments;
}

// From 0 in each run of equal segments of a row.
HostTensor CountedPositions(const HostTensor& segment_ids) {
  const Dims& dims = segment_ids.dims();
  HostTensor result = HostTensor::Zeros(DType::kS32, dims);
  const auto segments = segment_ids.as<int32_t>();
  const auto positions = result.mutable_as<int32_t>();
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    const bool continues = i % dims[1] != 0 && segments[i] == segments[i - 1];
    positions[i] = continues && segments[i] != 0 ? positions[i - 1] + 1 : 0;
  }
  return result;
}

}  // namespace

absl::StatusOr<data::Batch> MakeBatch(const std::string& source,
                                      const std::map<std::string, HostTensor>& by_name,
                                      const models::ModelConfig& model, bool require_targets,
                                      const std::vector<BatchTensorSpec>& extras) {
  const Tensors tensors(source, by_name);
  data::Batch batch;
  MW_ASSIGN_OR_RETURN(batch.tokens, tensors.Take("tokens", DType::kS32, nullptr));
  const Dims dims = batch.tokens.dims();
  if (dims[1] > model.max_position) {
    return absl::InvalidArgumentError(
        fmt::format("{}: rows of {} tokens are beyond the {} positions of the model", source,
                    dims[1], model.max_position));
  }
  MW_RETURN_IF_ERROR(tensors.CheckRange("tokens", batch.tokens, model.vocab_size, "the vocabulary",
                                        [](int64_t) { return true; }));

  if (require_targets || tensors.Contains("loss_mask")) {
    MW_ASSIGN_OR_RETURN(batch.loss_mask, tensors.Take("loss_mask", DType::kF32, &dims));
    MW_RETURN_IF_ERROR(tensors.CheckMask(batch.loss_mask));
  } else {
    batch.loss_mask = HostTensor::Zeros(DType::kF32, dims);
  }
  if (require_targets || tensors.Contains("targets")) {
    MW_ASSIGN_OR_RETURN(batch.targets, tensors.Take("targets", DType::kS32, &dims));
    const auto mask = batch.loss_mask.as<float>();
    MW_RETURN_IF_ERROR(tensors.CheckRange("targets", batch.targets, model.vocab_size,
                                          "the vocabulary",
                                          [&](int64_t i) { return mask[i] != 0; }));
  } else {
    batch.targets = HostTensor::Zeros(DType::kS32, dims);
  }
  if (tensors.Contains("segment_ids")) {
    MW_ASSIGN_OR_RETURN(batch.segment_ids, tensors.Take("segment_ids", DType::kS32, &dims));
    MW_RETURN_IF_ERROR(CheckSegmentIds(source, batch.segment_ids));
  } else {
    batch.segment_ids = OneDocument(dims);
  }
  if (tensors.Contains("positions")) {
    MW_ASSIGN_OR_RETURN(batch.positions, tensors.Take("positions", DType::kS32, &dims));
    const auto segments = batch.segment_ids.as<int32_t>();
    MW_RETURN_IF_ERROR(tensors.CheckRange("positions", batch.positions, model.max_position,
                                          "the model's positions",
                                          [&](int64_t i) { return segments[i] != 0; }));
  } else {
    batch.positions = CountedPositions(batch.segment_ids);
  }
  for (const BatchTensorSpec& spec : extras) {
    MW_ASSIGN_OR_RETURN(batch.extras[spec.name], tensors.TakeExtra(spec, dims));
  }
  CountTokens(batch);
  return batch;
}

absl::Status CheckSegmentIds(const std::string& source, const HostTensor& segment_ids) {
  const auto segments = segment_ids.as<int32_t>();
  for (int64_t i = 0; i < segment_ids.num_elements(); ++i) {
    if (segments[i] >= 0) continue;
    const int64_t row_length = segment_ids.dims()[1];
    return absl::InvalidArgumentError(fmt::format(
        "{}: segment_ids[{},{}] is {}; documents of a row are 1, 2, …, and padding is 0", source,
        i / row_length, i % row_length, segments[i]));
  }
  return absl::OkStatus();
}

void CountTokens(data::Batch& batch) {
  batch.num_tokens = 0;
  for (const int32_t segment : batch.segment_ids.as<int32_t>()) batch.num_tokens += segment != 0;
  double sum = 0;
  for (const float weight : batch.loss_mask.as<float>()) sum += weight;
  batch.num_loss_tokens = std::llround(sum);
}

}  // namespace mw::train
