#include "meshwright/train/batch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "meshwright/base/counted.h"
#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/make_batch.h"

namespace mw::train {
namespace {

constexpr std::array kPackedNames = {"tokens", "targets", "loss_mask", "segment_ids", "positions"};

// Of the tensors that a batch with `extras` may hold.
std::vector<std::string> NamesOf(const std::vector<BatchTensorSpec>& extras) {
  std::vector<std::string> names(kPackedNames.begin(), kPackedNames.end());
  for (const BatchTensorSpec& spec : extras) names.push_back(spec.name);
  return names;
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

// That advantages [B, S] are those of the segments 1 … S of the rows, S the most that a row has.
absl::Status CheckPackedAdvantages(const std::string& path, const HostTensor& advantages,
                                   const HostTensor& segment_ids) {
  const int64_t num_segments = advantages.dims()[1];
  const int64_t num_tokens = segment_ids.dims()[1];
  const auto values = advantages.as<float>();
  const auto segments = segment_ids.as<int32_t>();
  int32_t most = 0;
  for (int64_t row = 0; row < advantages.dims()[0]; ++row) {
    const auto of_row =
        segments.subspan(static_cast<size_t>(row * num_tokens), static_cast<size_t>(num_tokens));
    const int32_t last = std::ranges::max(of_row);
    most = std::max(most, last);
    for (int64_t s = std::max(last, 0); s < num_segments; ++s) {
      const float value = values[static_cast<size_t>(row * num_segments + s)];
      if (value == 0 || std::isnan(value)) continue;
      return absl::InvalidArgumentError(
          fmt::format("{}: advantages[{},{}] is {}, and row {} has no segment {}: give 0", path,
                      row, s, value, row, s + 1));
    }
  }
  if (num_segments <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{}: advantages is [{},{}], and no row has more than {}: give [{},{}], or one for "
      "each of the {} tokens",
      path, advantages.dims()[0], num_segments, Counted(most, "segment"), advantages.dims()[0],
      std::max(most, 1), num_tokens));
}

// That none of the file's tensors but `wanted` is one or two letters from one of them that the file
// lacks.
absl::Status CheckSpelling(const std::string& path, const io::SafetensorsFile& file,
                           const std::vector<std::string>& wanted) {
  constexpr int kMistyped = 2;  // letters
  for (const std::string& meant : wanted) {
    if (file.Contains(meant)) continue;
    for (const std::string& name : file.names()) {
      if (name.size() > meant.size() + kMistyped || EditDistance(name, meant) > kMistyped ||
          std::ranges::find(wanted, name) != wanted.end()) {
        continue;
      }
      return absl::InvalidArgumentError(fmt::format(
          "{} has a tensor {}, which nothing reads, and lacks {}: rename it, or leave it out", path,
          Excerpt(name), meant));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> OtherTensors(const std::string& path,
                                                      const std::vector<BatchTensorSpec>& extras) {
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<io::SafetensorsFile> file,
                      io::SafetensorsFile::Open(path));
  const std::vector<std::string> wanted = NamesOf(extras);
  MW_RETURN_IF_ERROR(CheckSpelling(path, *file, wanted));
  std::vector<std::string> others;
  for (const std::string& name : file->names()) {
    if (std::ranges::find(wanted, name) == wanted.end()) others.push_back(name);
  }
  return others;
}

absl::StatusOr<BatchFile> ReadBatchFile(const std::string& path, const models::ModelConfig& model,
                                        bool require_targets,
                                        const std::vector<BatchTensorSpec>& extras) {
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<io::SafetensorsFile> file,
                      io::SafetensorsFile::Open(path));
  std::map<std::string, HostTensor> tensors;
  for (const std::string& name : NamesOf(extras)) {
    if (!file->Contains(name)) continue;
    MW_ASSIGN_OR_RETURN(tensors[name], file->Read(name));
  }
  BatchFile result;
  MW_ASSIGN_OR_RETURN(result.batch, MakeBatch(path, tensors, model, require_targets, extras));
  result.has_targets = tensors.contains("targets");
  return result;
}

absl::Status TakeBatchContents(const std::string& path, LossOptions* options) {
  if (options->name != "grpo") return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<io::SafetensorsFile> file,
                      io::SafetensorsFile::Open(path));
  // The two that a batch may lack: without them ratios would be others.
  MW_RETURN_IF_ERROR(CheckSpelling(path, *file, {"old_logprobs", "sampler_logprobs"}));
  options->grpo.has_old_log_probs = file->Contains("old_logprobs");
  options->grpo.has_sampler_log_probs = file->Contains("sampler_logprobs");
  if (file->Contains("advantages")) {
    MW_ASSIGN_OR_RETURN(const io::TensorInfo info, file->info("advantages"));
    // Without segments, or with another number of rows, they are taken as by token, and
    // ReadBatchFile says what does not fit.
    bool is_packed = false;
    if (info.dims.size() == 2 && info.dtype == DType::kF32 && file->Contains("segment_ids")) {
      MW_ASSIGN_OR_RETURN(const io::TensorInfo segments, file->info("segment_ids"));
      is_packed = segments.dims.size() == 2 && segments.dtype == DType::kS32 &&
                  segments.dims[1] > 0 && segments.dims[0] == info.dims[0] &&
                  segments.dims[1] != info.dims[1];
    }
    if (is_packed) {
      MW_ASSIGN_OR_RETURN(const HostTensor advantages, file->Read("advantages"));
      MW_ASSIGN_OR_RETURN(const HostTensor segment_ids, file->Read("segment_ids"));
      MW_RETURN_IF_ERROR(CheckPackedAdvantages(path, advantages, segment_ids));
    }
    options->grpo.has_token_advantages = info.dims.size() == 2 && !is_packed;
    options->grpo.max_segments = is_packed ? std::max<int64_t>(1, info.dims[1]) : 1;
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
    CountTokens(part);
    parts.push_back(std::move(part));
    first += count;
  }
  return parts;
}

}  // namespace mw::train
