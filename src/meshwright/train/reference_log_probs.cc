#include "meshwright/train/reference_log_probs.h"

#include <fmt/format.h>

#include <utility>

#include "meshwright/base/check.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/training_data.h"

namespace mw::train {
namespace {

constexpr char kRefLogProbs[] = "ref_logprobs";

// Calls visit(place in the batch, place in the values) for each token with a loss.
template <typename Visit>
void ForEachToken(const data::Batch& batch, const std::vector<int64_t>& begin, Visit visit) {
  const auto mask = batch.loss_mask.as<float>();
  const int64_t row_length = batch.loss_mask.dims()[1];
  for (size_t row = 0; row < batch.example_indices.size(); ++row) {
    const data::RowPlan& plan = batch.example_indices[row];
    if (plan.empty()) continue;
    MW_CHECK_MSG(plan.size() == 1, "a reference is of rows with one example each");
    int64_t next = begin[static_cast<size_t>(plan[0])];
    const int64_t first = static_cast<int64_t>(row) * row_length;
    for (int64_t i = first; i < first + row_length; ++i) {
      if (mask[static_cast<size_t>(i)] != 0) visit(i, next++);
    }
    MW_CHECK(next == begin[static_cast<size_t>(plan[0]) + 1]);
  }
}

std::string Checksum(const HostTensor& values) {
  io::Checksum checksum;
  checksum.Update({values.bytes(), values.num_bytes()});
  return checksum.HexDigest();
}

// What a file says of one of its data sets.
std::string DataKey(const std::string& name) { return name + ".data"; }
std::string ChecksumKey(const std::string& name) { return name + ".checksum"; }

}  // namespace

ReferenceLogProbs::ReferenceLogProbs(const data::Dataset& dataset)
    : data_fingerprint_(fmt::format("{:016x}", dataset.Fingerprint())) {
  begin_.push_back(0);
  for (const data::Example& example : dataset.examples()) {
    int64_t count = 0;
    for (const uint8_t learned : example.loss_mask) count += learned;
    begin_.push_back(begin_.back() + count);
  }
  values_ = HostTensor::Zeros(DType::kF32, {begin_.back()});
}

absl::StatusOr<ReferenceLogProbs> ReferenceLogProbs::Compute(
    Engine& engine, std::shared_ptr<const data::Dataset> dataset, const TrainConfig& config,
    const std::atomic<bool>* stop) {
  ReferenceLogProbs reference(*dataset);
  const auto values = reference.values_.mutable_as<float>();
  MW_RETURN_IF_ERROR(VisitOnce(
      std::move(dataset), config, stop, "the scoring", [&](data::Batch& batch) -> absl::Status {
        MW_ASSIGN_OR_RETURN(const Scores scores, engine.ScoreStep(batch));
        const auto log_probs = scores.log_probs.as<float>();
        ForEachToken(batch, reference.begin_, [&](int64_t place, int64_t value) {
          values[static_cast<size_t>(value)] = log_probs[static_cast<size_t>(place)];
        });
        return absl::OkStatus();
      }));
  return reference;
}

absl::Status ReferenceLogProbs::Fill(data::Batch& batch) const {
  HostTensor filled = HostTensor::Zeros(DType::kF32, batch.loss_mask.dims());
  const auto to = filled.mutable_as<float>();
  const auto from = values_.as<float>();
  ForEachToken(batch, begin_, [&](int64_t place, int64_t value) {
    to[static_cast<size_t>(place)] = from[static_cast<size_t>(value)];
  });
  batch.extras[kRefLogProbs] = std::move(filled);
  return absl::OkStatus();
}

absl::Status WriteReference(const std::string& out,
                            const std::map<std::string, const ReferenceLogProbs*>& by_name,
                            const std::map<std::string, std::string>& facts) {
  std::map<std::string, HostTensor> tensors;
  std::map<std::string, std::string> metadata = facts;
  for (const auto& [name, reference] : by_name) {
    tensors[name] = reference->values();
    metadata[DataKey(name)] = reference->data_fingerprint();
    metadata[ChecksumKey(name)] = Checksum(reference->values());
  }
  return io::WriteSafetensors(fmt::format("{}/{}", out, kReferenceFile), std::move(tensors),
                              metadata)
      .status();
}

absl::StatusOr<ReferenceLogProbs> ReferenceLogProbs::Read(
    const std::string& out, const std::string& name, const data::Dataset& dataset,
    const std::map<std::string, std::string>& facts) {
  const std::string path = fmt::format("{}/{}", out, kReferenceFile);
  if (!io::FileExists(path)) {
    return absl::FailedPreconditionError(
        fmt::format("{} has no {}: the reference's log-probs, which cannot be computed again from "
                    "weights that were trained; bring the file back, or begin another run",
                    out, kReferenceFile));
  }
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<io::SafetensorsFile> file,
                      io::SafetensorsFile::Open(path));
  if (!file->Contains(name)) {
    return absl::FailedPreconditionError(fmt::format(
        "{} has no reference log-probs of {}: resume without it, or begin another run with "
        "it",
        path, name));
  }
  const auto said = [&](const std::string& key) -> std::string {
    const auto it = file->metadata().find(key);
    return it == file->metadata().end() ? "" : it->second;
  };
  for (const auto& [key, value] : facts) {
    if (said(key) == value) continue;
    if (key == kReferenceModel) {
      return absl::FailedPreconditionError(fmt::format(
          "the reference log-probs in {} are of another model than --model: resume with "
          "the model that the run began with",
          path));
    }
    return absl::FailedPreconditionError(
        fmt::format("the reference log-probs in {} were computed with {}={}, not {}: resume with "
                    "that, or begin another run",
                    path, key, said(key), value));
  }
  ReferenceLogProbs reference(dataset);
  MW_ASSIGN_OR_RETURN(HostTensor values, file->Read(name));
  if (said(DataKey(name)) != reference.data_fingerprint_ ||
      values.dims() != reference.values_.dims() || values.dtype() != DType::kF32) {
    return absl::FailedPreconditionError(
        fmt::format("the reference log-probs in {} are of other {} than now: resume with the same "
                    "files, or begin another run",
                    path, name));
  }
  if (Checksum(values) != said(ChecksumKey(name))) {
    return absl::DataLossError(
        fmt::format("{}: {} is damaged: its checksum is another", path, name));
  }
  reference.values_ = std::move(values);
  return reference;
}

std::map<std::string, std::string> ReferenceFacts(const TrainConfig& config) {
  std::map<std::string, std::string> facts;
  for (const ConfigField& field : ConfigFields()) {
    for (const char* key : {"dtype", "weight_dtype", "matmul_precision", "max_target_length"}) {
      if (std::string_view(field.key) == key) facts[key] = ConfigValue(config, field);
    }
  }
  return facts;
}

}  // namespace mw::train
