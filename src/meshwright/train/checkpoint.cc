#include "meshwright/train/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "meshwright/base/json_error.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/atomic_directory.h"
#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/json_util.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/train/loss_totals.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "meshwright-checkpoint-1";
// With a partial step, which a reader of the first would drop without a word.
constexpr const char* kPartialFormat = "meshwright-checkpoint-2";
// In the accumulator file, beside the parameters' names.
constexpr const char* kSumsTensor = "loss_sums";

std::string CheckpointsDir(const std::string& run_dir) { return run_dir + "/checkpoints"; }

// The step that a folder's name says.
std::optional<int64_t> ParseStep(const std::string& name) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return std::to_string(step) == name ? std::optional<int64_t>(step) : std::nullopt;
}

// A checkpoint of a run is of the step that its folder is named after: a copy under another name
// would take the run back, or forward, without a word.
absl::Status CheckStep(const std::string& dir, int64_t step) {
  fs::path place = fs::path(dir).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  const std::optional<int64_t> named = ParseStep(place.filename().string());
  if (!named || *named == step || place.parent_path().filename() != "checkpoints") {
    return absl::OkStatus();
  }
  return absl::DataLossError(fmt::format(
      "{}/{} is of step {}, and the folder's name says {}: a checkpoint was copied or renamed", dir,
      kStateFile, step, *named));
}

// Steps of the complete checkpoints, ascending; what is passed over goes into `notes`.
absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& dir,
                                               std::vector<std::string>* notes) {
  std::vector<int64_t> steps;
  if (!io::IsDirectory(dir)) return steps;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const auto note = [&](const char* reason) {
      if (notes != nullptr)
        notes->push_back(fmt::format("{}/{} was passed over: {}", dir, name, reason));
    };
    if (io::IsTemporaryName(name)) {
      note("a save that was not finished");
      continue;
    }
    const std::optional<int64_t> step = ParseStep(name);
    if (!step) continue;
    if (!io::FileExists(it->path().string() + "/" + io::Manifest::kFileName)) {
      note("it has no manifest.json, so it is no complete checkpoint");
      continue;
    }
    steps.push_back(*step);
  }
  if (error) {
    return absl::UnavailableError(fmt::format("cannot list {}: {}", dir, error.message()));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<std::map<std::string, HostTensor>> ReadTensors(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<io::SafetensorsFile> file,
                      io::SafetensorsFile::Open(path));
  std::map<std::string, HostTensor> tensors;
  for (const std::string& name : file->names()) {
    MW_ASSIGN_OR_RETURN(tensors[name], file->Read(name));
  }
  return tensors;
}

double SumOfDenominators(const PartialStep& partial) {
  double sum = 0;
  for (const MicroBatchSums& each : partial.micro_batches) sum += each.denominator;
  return sum;
}

// Returns the bytes of all files, which the manifest then lists.
absl::StatusOr<uint64_t> WriteState(const std::string& dir, CheckpointState state) {
  MW_RETURN_IF_ERROR(
      io::WriteSafetensors(dir + "/" + kOptimizerFile, std::move(state.engine.tensors)).status());
  nlohmann::ordered_json json;
  std::optional<PartialStep>& partial = state.engine.partial;
  json["format"] = partial ? kPartialFormat : kFormat;
  if (partial) {
    std::map<std::string, HostTensor> tensors = std::move(partial->accumulators);
    tensors[kSumsTensor] = partial->sums;
    MW_RETURN_IF_ERROR(
        io::WriteSafetensors(dir + "/" + kAccumulatorFile, std::move(tensors)).status());
    json["micro_step_count"] = partial->num_micro_batches;
    json["accumulated_tokens"] = partial->num_tokens;
    json["accumulated_denominator"] = partial->denominator();
    json["micro_batches"] = nlohmann::ordered_json::array();
    for (const MicroBatchSums& each : partial->micro_batches) {
      json["micro_batches"].push_back(
          {{"loss_sum", each.loss_sum}, {"denominator", each.denominator}});
    }
    json["update_data_iterator"] = state.update_data_iterator;
  }
  json["step"] = state.engine.step;
  json["num_skipped_steps"] = state.engine.num_skipped_steps;
  json["seed"] = state.seed;
  json["data_iterator"] = state.data_iterator;
  json["config"] = state.config;
  json["metadata"] = state.metadata;
  try {
    MW_RETURN_IF_ERROR(io::WriteFile(dir + "/" + kStateFile, json.dump(2) + "\n"));
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(
        fmt::format("the checkpoint's metadata is not UTF-8 text: {}", JsonErrorText(e.what())));
  }
  MW_ASSIGN_OR_RETURN(const io::Manifest manifest, io::Manifest::FromDirectory(dir));
  MW_RETURN_IF_ERROR(manifest.WriteTo(dir));
  uint64_t num_bytes = 0;
  for (const io::FileDigest& file : manifest.files()) num_bytes += file.size_bytes;
  return num_bytes;
}

double NumberOrNan(const nlohmann::json& json) {
  // Which JSON does not have.
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

bool SameOrNan(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Reads what each micro-batch added into `partial`. Returns the denominator, which 0 is one of:
// as it is stated, else rebuilt from the micro-batches'; nullopt when there is neither.
std::optional<double> ReadMicroBatches(const nlohmann::json& json, PartialStep& partial) {
  const auto micro_batches = json.find("micro_batches");
  if (micro_batches != json.end()) {
    for (const nlohmann::json& each : *micro_batches) {
      partial.micro_batches.push_back(
          {NumberOrNan(each.at("loss_sum")), NumberOrNan(each.at("denominator"))});
    }
  }
  const auto stated = json.find("accumulated_denominator");
  if (stated != json.end()) return NumberOrNan(*stated);
  if (partial.micro_batches.empty()) return std::nullopt;
  return SumOfDenominators(partial);
}

// OK when all that says what the accumulated denominator is says the same.
absl::Status CheckDenominator(const PartialStep& partial, std::optional<double> denominator) {
  if (!denominator) {
    return absl::DataLossError(
        "it has neither accumulated_denominator nor micro_batches, without which what the update "
        "under way has accumulated cannot be divided");
  }
  if (partial.sums.dtype() != DType::kF32 || partial.sums.num_elements() <= kLossDenominator) {
    return absl::DataLossError(fmt::format("{} in {} is {}{}", kSumsTensor, kAccumulatorFile,
                                           DTypeName(partial.sums.dtype()),
                                           DimsToString(partial.sums.dims())));
  }
  const float held = partial.denominator();
  if (!SameOrNan(static_cast<float>(*denominator), held)) {
    return absl::DataLossError(
        fmt::format("the accumulated denominator is {}, but {} in {} holds {}", *denominator,
                    kSumsTensor, kAccumulatorFile, held));
  }
  const double sum = SumOfDenominators(partial);
  if (!partial.micro_batches.empty() && std::isfinite(held) && static_cast<float>(sum) != held) {
    return absl::DataLossError(fmt::format(
        "the accumulated denominator is {}, but those of its micro_batches add up to {}",
        *denominator, sum));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> SaveCheckpoint(const std::string& run_dir, CheckpointState state,
                                        ModelWriter write_model, const CheckpointOptions& options) {
  const std::string dir = CheckpointsDir(run_dir);
  const int64_t step = state.engine.step;
  const std::string name = std::to_string(step);
  MW_RETURN_IF_ERROR(io::MakeDirectories(dir));
  MW_RETURN_IF_ERROR(io::RemoveTemporaries(dir).status());
  uint64_t num_bytes = 0;
  {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<io::AtomicDirectory> folder,
                        io::AtomicDirectory::Create(dir + "/" + name));
    MW_RETURN_IF_ERROR(write_model(folder->path()));
    write_model = nullptr;  // with the weights it holds
    MW_ASSIGN_OR_RETURN(num_bytes, WriteState(folder->path(), std::move(state)));
    MW_RETURN_IF_ERROR(folder->Publish());
  }
  MW_RETURN_IF_ERROR(io::SwapSymlink(name, dir + "/latest"));
  if (options.max_num_checkpoints_to_keep <= 0) return num_bytes;
  MW_ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListSteps(dir, nullptr));
  // The one just saved stays, also when older runs left higher steps.
  std::erase(steps, step);
  const auto others = static_cast<size_t>(options.max_num_checkpoints_to_keep - 1);
  for (size_t i = 0; i + others < steps.size(); ++i) {
    // Under a temporary name a half-removed folder is no checkpoint, and the next save
    // removes the rest.
    const std::string old = fmt::format("{}/{}", dir, steps[i]);
    const std::string doomed = fmt::format("{}.tmp-{}", old, ::getpid());
    if (std::rename(old.c_str(), doomed.c_str()) != 0) {
      return io::ErrnoStatus(errno, "rename", old);
    }
    MW_RETURN_IF_ERROR(io::RemoveAll(doomed));
  }
  return num_bytes;
}

absl::StatusOr<std::vector<FoundCheckpoint>> ListCheckpoints(const std::string& run_dir,
                                                             std::vector<std::string>* notes) {
  const std::string dir = CheckpointsDir(run_dir);
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(dir, notes));
  std::vector<FoundCheckpoint> found;
  for (const int64_t step : steps) found.push_back({fmt::format("{}/{}", dir, step), step});
  return found;
}

absl::StatusOr<std::optional<FoundCheckpoint>> FindLatestCheckpoint(
    const std::string& run_dir, std::vector<std::string>* notes) {
  MW_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found, ListCheckpoints(run_dir, notes));
  return found.empty() ? std::optional<FoundCheckpoint>() : found.back();
}

absl::StatusOr<CheckpointState> LoadCheckpoint(const std::string& dir,
                                               PartialUpdate partial_update) {
  const bool drop = partial_update == PartialUpdate::kDrop;
  const std::string state_path = dir + "/" + kStateFile;
  if (!io::IsDirectory(dir)) {
    return absl::NotFoundError(fmt::format("{} is no folder, so no checkpoint", dir));
  }
  if (!io::FileExists(dir + "/" + io::Manifest::kFileName)) {
    return absl::NotFoundError(
        fmt::format("{} is no checkpoint: it has no {}", dir, io::Manifest::kFileName));
  }
  MW_ASSIGN_OR_RETURN(const io::Manifest manifest, io::Manifest::ReadFrom(dir));
  for (const char* const needed : {kStateFile, kOptimizerFile}) {
    const auto& files = manifest.files();
    if (std::none_of(files.begin(), files.end(), [&](const auto& f) { return f.name == needed; })) {
      return absl::DataLossError(
          fmt::format("{} is no checkpoint: its manifest does not list {}", dir, needed));
    }
  }
  MW_RETURN_IF_ERROR(drop ? manifest.Verify(dir, {kAccumulatorFile}) : manifest.Verify(dir));

  MW_ASSIGN_OR_RETURN(const std::string text, io::ReadRegularFile(state_path));
  MW_ASSIGN_OR_RETURN(const nlohmann::json json, io::ParseJsonObject(text, state_path));
  CheckpointState state;
  std::optional<double> accumulated_denominator;
  try {
    const std::string format = json.at("format").get<std::string>();
    if (format != kFormat && format != kPartialFormat) {
      return absl::UnimplementedError(
          fmt::format("{} has format \"{}\"; this program reads \"{}\" and \"{}\"", state_path,
                      format, kFormat, kPartialFormat));
    }
    if (format == kPartialFormat) {
      state.update_data_iterator = json.at("update_data_iterator").get<std::string>();
    }
    if (format == kPartialFormat && !drop) {
      PartialStep& partial = state.engine.partial.emplace();
      partial.num_micro_batches = json.at("micro_step_count").get<int64_t>();
      partial.num_tokens = json.at("accumulated_tokens").get<int64_t>();
      accumulated_denominator = ReadMicroBatches(json, partial);
    }
    state.engine.step = json.at("step").get<int64_t>();
    state.engine.num_skipped_steps = json.at("num_skipped_steps").get<int64_t>();
    state.seed = json.at("seed").get<uint64_t>();
    state.data_iterator = json.at("data_iterator").get<std::string>();
    state.config = json.at("config").get<std::string>();
    state.metadata = json.at("metadata").get<std::map<std::string, std::string>>();
  } catch (const nlohmann::json::exception& e) {
    return absl::DataLossError(fmt::format("{}: {}", state_path, JsonErrorText(e.what())));
  }
  MW_RETURN_IF_ERROR(CheckStep(dir, state.engine.step));
  if (drop && !state.update_data_iterator.empty()) {
    state.data_iterator = state.update_data_iterator;
  }
  MW_ASSIGN_OR_RETURN(state.engine.tensors, ReadTensors(dir + "/" + kOptimizerFile));
  if (state.engine.partial) {
    PartialStep& partial = *state.engine.partial;
    const std::string path = dir + "/" + kAccumulatorFile;
    // Also where the manifest does not list it.
    if (!io::FileExists(path)) {
      return absl::DataLossError(
          fmt::format("{} is missing, but {} says that {} micro-batches are accumulated", path,
                      kStateFile, partial.num_micro_batches));
    }
    MW_ASSIGN_OR_RETURN(partial.accumulators, ReadTensors(path));
    auto sums = partial.accumulators.extract(kSumsTensor);
    if (sums.empty()) {
      return absl::DataLossError(fmt::format("{} has no tensor {}", path, kSumsTensor));
    }
    partial.sums = std::move(sums.mapped());
    if (absl::Status status = CheckDenominator(partial, accumulated_denominator); !status.ok()) {
      return absl::DataLossError(fmt::format("{}: {}", state_path, std::string(status.message())));
    }
  }
  return state;
}

std::map<std::string, std::string> SavedMetadata(const std::string& dir) {
  std::map<std::string, std::string> metadata;
  const absl::StatusOr<std::string> text = io::ReadRegularFile(dir + "/" + kStateFile);
  if (!text.ok()) return metadata;
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("metadata") || !json["metadata"].is_object()) {
    return metadata;
  }
  for (const auto& [key, value] : json["metadata"].items()) {
    if (value.is_string()) metadata[key] = value;
  }
  return metadata;
}

}  // namespace mw::train
