#include "meshwright/train/batch_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/safetensors.h"

namespace mw::train {
namespace {

absl::StatusOr<HostTensor> ReadTensor(const io::SafetensorsFile& file, const std::string& name,
                                      DType dtype, const Dims* dims) {
  if (!file.Contains(name)) {
    return absl::NotFoundError(fmt::format(
        "{} has no tensor {}; a batch has tokens, targets and loss_mask", file.path(), name));
  }
  MW_ASSIGN_OR_RETURN(const io::TensorInfo info, file.info(name));
  if (info.dtype != dtype) {
    return absl::InvalidArgumentError(fmt::format("{}: {} must be {}, not {}", file.path(), name,
                                                  DTypeName(dtype), DTypeName(info.dtype)));
  }
  const auto text = [](const Dims& d) { return fmt::format("[{}]", fmt::join(d, ",")); };
  if (info.dims.size() != 2 || NumElements(info.dims) == 0) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} must be [rows, tokens], neither of them 0, not {}", file.path(), name,
                    text(info.dims)));
  }
  if (dims != nullptr && info.dims != *dims) {
    return absl::InvalidArgumentError(fmt::format("{}: {} is {}, but tokens is {}", file.path(),
                                                  name, text(info.dims), text(*dims)));
  }
  return file.Read(name);
}

// Every s32 of `tensor` that `counts` says yes to is in 0 … size-1.
template <typename Counts>
absl::Status CheckRange(const std::string& path, const char* name, const HostTensor& tensor,
                        int64_t size, const std::string& what, Counts counts) {
  const auto values = tensor.as<int32_t>();
  const int64_t row_length = tensor.dims()[1];
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    if ((values[i] < 0 || values[i] >= size) && counts(i)) {
      return absl::InvalidArgumentError(fmt::format("{}: {}[{},{}] is {}, outside {} of {}", path,
                                                    name, i / row_length, i % row_length, values[i],
                                                    what, size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<HostTensor> ReadExtra(const io::SafetensorsFile& file, const BatchTensorSpec& spec,
                                     const Dims& tokens) {
  const TensorType type = spec.Type(tokens[0], tokens[1]);
  if (!file.Contains(spec.name)) {
    return absl::NotFoundError(fmt::format("{} has no tensor {}, which the loss needs as {}",
                                           file.path(), spec.name, type.ToString()));
  }
  MW_ASSIGN_OR_RETURN(const io::TensorInfo info, file.info(spec.name));
  if (info.dtype != type.dtype || info.dims != type.dims) {
    return absl::InvalidArgumentError(fmt::format("{}: {} must be {}, not {}", file.path(),
                                                  spec.name, type.ToString(),
                                                  TensorType(info.dtype, info.dims).ToString()));
  }
  return file.Read(spec.name);
}

HostTensor Rows(const HostTensor& tensor, int64_t first, int64_t count) {
  Dims dims = tensor.dims();
  dims[0] = count;
  HostTensor rows = HostTensor::Empty(tensor.dtype(), dims);
  const size_t row_bytes = tensor.num_bytes() / static_cast<size_t>(tensor.dims()[0]);
  const std::byte* from = tensor.bytes() + static_cast<size_t>(first) * row_bytes;
  std::copy(from, from + static_cast<size_t>(count) * row_bytes, rows.mutable_bytes());
  return rows;
}

void Count(data::Batch& batch) {
  batch.num_tokens = 0;
  for (const int32_t segment : batch.segment_ids.as<int32_t>()) batch.num_tokens += segment != 0;
  double sum = 0;
  for (const float weight : batch.loss_mask.as<float>()) sum += weight;
  batch.num_loss_tokens = std::llround(sum);
}

}  // namespace

absl::StatusOr<BatchFile> ReadBatchFile(const std::string& path, const models::ModelConfig& model,
                                        bool require_targets,
                                        const std::vector<BatchTensorSpec>& extras) {
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<io::SafetensorsFile> file,
                      io::SafetensorsFile::Open(path));
  BatchFile result;
  data::Batch& batch = result.batch;
  MW_ASSIGN_OR_RETURN(batch.tokens, ReadTensor(*file, "tokens", DType::kS32, nullptr));
  const Dims dims = batch.tokens.dims();
  if (dims[1] > model.max_position) {
    return absl::InvalidArgumentError(
        fmt::format("{}: rows of {} tokens are beyond the {} positions of the model", path, dims[1],
                    model.max_position));
  }
  MW_RETURN_IF_ERROR(CheckRange(path, "tokens", batch.tokens, model.vocab_size, "the vocabulary",
                                [](int64_t) { return true; }));

  if (require_targets || file->Contains("loss_mask")) {
    MW_ASSIGN_OR_RETURN(batch.loss_mask, ReadTensor(*file, "loss_mask", DType::kF32, &dims));
    const auto mask = batch.loss_mask.as<float>();
    for (int64_t i = 0; i < batch.loss_mask.num_elements(); ++i) {
      if (!(mask[i] >= 0) || !std::isfinite(mask[i])) {
        return absl::InvalidArgumentError(
            fmt::format("{}: loss_mask[{},{}] is {}; a weight is finite and not negative", path,
                        i / dims[1], i % dims[1], mask[i]));
      }
    }
  } else {
    batch.loss_mask = HostTensor::Zeros(DType::kF32, dims);
  }
  result.has_targets = file->Contains("targets");
  if (require_targets || result.has_targets) {
    MW_ASSIGN_OR_RETURN(batch.targets, ReadTensor(*file, "targets", DType::kS32, &dims));
    const auto mask = batch.loss_mask.as<float>();
    MW_RETURN_IF_ERROR(CheckRange(path, "targets", batch.targets, model.vocab_size,
                                  "the vocabulary", [&](int64_t i) { return mask[i] != 0; }));
  } else {
    batch.targets = HostTensor::Zeros(DType::kS32, dims);
  }

  if (file->Contains("segment_ids")) {
    MW_ASSIGN_OR_RETURN(batch.segment_ids, ReadTensor(*file, "segment_ids", DType::kS32, &dims));
  } else {
    batch.segment_ids = HostTensor::Empty(DType::kS32, dims);
    for (int32_t& segment : batch.segment_ids.mutable_as<int32_t>()) segment = 1;
  }
  if (file->Contains("positions")) {
    MW_ASSIGN_OR_RETURN(batch.positions, ReadTensor(*file, "positions", DType::kS32, &dims));
    const auto segments = batch.segment_ids.as<int32_t>();
    MW_RETURN_IF_ERROR(CheckRange(path, "positions", batch.positions, model.max_position,
                                  "the model's positions",
                                  [&](int64_t i) { return segments[i] != 0; }));
  } else {
    batch.positions = HostTensor::Zeros(DType::kS32, dims);
    const auto segments = batch.segment_ids.as<int32_t>();
    const auto positions = batch.positions.mutable_as<int32_t>();
    for (int64_t i = 0; i < batch.positions.num_elements(); ++i) {
      const bool continues = i % dims[1] != 0 && segments[i] == segments[i - 1];
      positions[i] = continues && segments[i] != 0 ? positions[i - 1] + 1 : 0;
    }
  }
  for (const BatchTensorSpec& spec : extras) {
    MW_ASSIGN_OR_RETURN(batch.extras[spec.name], ReadExtra(*file, spec, dims));
  }
  Count(batch);
  return result;
}

absl::Status TakeBatchContents(const std::string& path, LossOptions* options) {
  if (options->name != "grpo") return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<io::SafetensorsFile> file,
                      io::SafetensorsFile::Open(path));
  options->grpo.has_old_log_probs = file->Contains("old_logprobs");
  options->grpo.has_sampler_log_probs = file->Contains("sampler_logprobs");
  if (file->Contains("advantages")) {
    MW_ASSIGN_OR_RETURN(const io::TensorInfo info, file->info("advantages"));
    options->grpo.has_token_advantages = info.dims.size() == 2;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> ParseMicroBatches(const std::string& text, int64_t num_rows) {
  std::vector<int64_t> numbers;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  bool valid = !text.empty();
  while (valid) {
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    valid = error == std::errc() && number >= 1 && number <= num_rows;
    numbers.push_back(number);
    if (!valid || stop == end) break;
    valid = *stop == ',';
    at = stop + 1;
  }
  if (valid && numbers.size() == 1 && num_rows % numbers[0] == 0) {
    return std::vector<int64_t>(static_cast<size_t>(numbers[0]), num_rows / numbers[0]);
  }
  if (valid && numbers.size() > 1 &&
      std::accumulate(numbers.begin(), numbers.end(), int64_t{0}) == num_rows) {
    return numbers;
  }
  return absl::InvalidArgumentError(
      fmt::format("--micro-batches '{}' does not cut the batch's {} rows: give a number that "
                  "divides them, or the rows of each, such as 2,1,1",
                  text, num_rows));
}

std::vector<data::Batch> SplitBatch(const data::Batch& batch, const std::vector<int64_t>& rows) {
  std::vector<data::Batch> parts;
  int64_t first = 0;
  for (const int64_t count : rows) {
    data::Batch part;
    part.tokens = Rows(batch.tokens, first, count);
    part.targets = Rows(batch.targets, first, count);
    part.loss_mask = Rows(batch.loss_mask, first, count);
    part.segment_ids = Rows(batch.segment_ids, first, count);
    part.positions = Rows(batch.positions, first, count);
    for (const auto& [name, tensor] : batch.extras) {
      part.extras[name] = Rows(tensor, first, count);
    }
    Count(part);
    parts.push_back(std::move(part));
    first += count;
  }
  return parts;
}

}  // namespace mw::train
