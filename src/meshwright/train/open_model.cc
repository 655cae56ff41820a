#include "meshwright/train/open_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/gguf.h"
#include "meshwright/io/hf_folder.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/models/gguf_config.h"
#include "meshwright/models/hf_config.h"
#include "meshwright/models/peft_config.h"
#include "meshwright/models/presets.h"
#include "meshwright/models/registry.h"
#include "meshwright/train/adapter.h"
#include "meshwright/train/checkpoint.h"

namespace mw::train {
namespace {

constexpr std::string_view kRandomPrefix = "random:";
constexpr const char* kRopeFreqs = "rope_freqs.weight";

template <typename T>
std::optional<T> ParseWhole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The status with `path` in front, unless the message names it already; with the whole
// path for the file's name alone.
absl::Status InFile(const absl::Status& status, const std::string& path) {
  std::string message(status.message());
  if (status.ok() || message.find(path) != std::string::npos) return status;
  const std::string name = path.substr(path.rfind('/') + 1) + ": ";
  if (message.starts_with(name)) message.erase(0, name.size());
  return absl::Status(status.code(), fmt::format("{}: {}", path, message));
}

template <typename T>
std::optional<T> Found(absl::StatusOr<T> value) {
  return value.ok() ? std::optional<T>(*std::move(value)) : std::nullopt;
}

absl::StatusOr<models::ModelConfig> ReadGgufConfig(const io::GgufFile& file) {
  const io::GgufMetadata& metadata = file.metadata();
  models::GgufLookup lookup;
  lookup.string = [&](std::string_view key) { return Found(metadata.GetString(key)); };
  lookup.integer = [&](std::string_view key) { return Found(metadata.GetInt(key)); };
  lookup.number = [&](std::string_view key) { return Found(metadata.GetFloat(key)); };
  lookup.array_size = [&](std::string_view key) -> std::optional<int64_t> {
    const io::GgufValue* value = metadata.Find(key);
    if (value == nullptr || value->type != io::GgufType::kArray) return std::nullopt;
    return static_cast<int64_t>(value->size());
  };
  lookup.has_tensor = [&](std::string_view name) { return file.Contains(name); };
  if (file.Contains(kRopeFreqs)) {
    MW_ASSIGN_OR_RETURN(const HostTensor factors, file.Read(kRopeFreqs));
    const HostTensor floats = factors.ConvertTo(DType::kF32);
    lookup.rope_freq_factors.assign(floats.as<float>().begin(), floats.as<float>().end());
  }
  return models::ModelConfigFromGguf(lookup);
}

absl::StatusOr<OpenedModel> OpenRandom(const std::string& text) {
  const std::string_view rest = std::string_view(text).substr(kRandomPrefix.size());
  const size_t colon = rest.find(':');
  OpenedModel opened;
  opened.kind = OpenedModel::Kind::kRandom;
  if (colon != std::string_view::npos) {
    const auto seed = ParseWhole<uint64_t>(rest.substr(colon + 1));
    if (!seed) {
      return absl::InvalidArgumentError(
          fmt::format("model {}: the seed \"{}\" is no whole number from 0 to 2^64-1; write "
                      "random:PRESET[:SEED]",
                      Excerpt(text), Excerpt(rest.substr(colon + 1))));
    }
    opened.random_seed = *seed;
  }
  const auto config = models::LoadPreset(rest.substr(0, colon));
  if (!config.ok()) return InFile(config.status(), text);
  opened.config = *config;
  return opened;
}

absl::StatusOr<OpenedModel> OpenGguf(const std::string& path) {
  OpenedModel opened;
  opened.kind = OpenedModel::Kind::kGguf;
  opened.path = path;
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<io::GgufFile> file, io::GgufFile::Open(path));
  const auto config = ReadGgufConfig(*file);
  if (!config.ok()) return InFile(config.status(), path);
  opened.config = *config;
  opened.weights = file;
  return opened;
}

bool IsCheckpoint(const std::string& path) { return io::FileExists(path + "/" + kStateFile); }

bool HoldsModel(const std::string& path) {
  return io::FileExists(path + "/config.json") || io::FileExists(path + "/" + kAdapterConfigFile);
}

absl::StatusOr<OpenedModel> OpenHfFolder(const std::string& path) {
  OpenedModel opened;
  opened.path = path;
  opened.kind = IsCheckpoint(path) ? OpenedModel::Kind::kCheckpoint : OpenedModel::Kind::kHfFolder;
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<io::HfFolder> folder, io::HfFolder::Open(path));
  const auto config = models::ModelConfigFromHfJson(folder->config_text());
  if (!config.ok()) return InFile(config.status(), path + "/config.json");
  opened.config = *config;
  opened.weights = folder;
  return opened;
}

// The adapter in the folder `path` with its base model.
absl::StatusOr<OpenedModel> OpenAdapter(const std::string& path, const std::string& base) {
  const std::string config_path = path + "/" + kAdapterConfigFile;
  MW_ASSIGN_OR_RETURN(const std::string text, io::ReadRegularFile(config_path));
  const auto config = models::PeftConfigFromJson(text);
  if (!config.ok()) return InFile(config.status(), config_path);
  const std::string& name = base.empty() ? config->base : base;
  if (name.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{} does not name the adapter's base model: give --base MODEL", config_path));
  }
  absl::StatusOr<OpenedModel> opened = OpenModel(name);
  if (absl::IsNotFound(opened.status()) && base.empty() && !io::FileExists(name)) {
    return absl::NotFoundError(fmt::format(
        "the adapter {} belongs to the base model {}, and there is none at that path: give --base "
        "MODEL",
        path, Excerpt(name)));
  }
  MW_RETURN_IF_ERROR(opened.status());
  if (opened->adapter) {
    return absl::InvalidArgumentError(
        fmt::format("the base model {} of the adapter {} is an adapter itself: merge that into "
                    "its own base first (convert --merge) and give the result as --base",
                    Excerpt(name), path));
  }
  OpenedAdapter adapter;
  adapter.lora = config->lora;
  adapter.dropout = config->dropout;
  adapter.path = path;
  adapter.checkpoint = IsCheckpoint(path);
  const std::string weights = path + "/" + kAdapterWeightsFile;
  if (!io::FileExists(weights)) {
    return absl::NotFoundError(
        fmt::format("the adapter {} has no {}{}", path, kAdapterWeightsFile,
                    io::FileExists(path + "/adapter_model.bin")
                        ? ", only the older adapter_model.bin: save it with a newer peft"
                        : ""));
  }
  MW_ASSIGN_OR_RETURN(adapter.weights, io::SafetensorsFile::Open(weights));
  opened->adapter = std::move(adapter);
  return opened;
}

absl::StatusOr<OpenedModel> OpenFolder(const std::string& path, const std::string& base) {
  // As in transformers, which loads a folder with both as an adapter.
  return io::FileExists(path + "/" + kAdapterConfigFile) ? OpenAdapter(path, base)
                                                         : OpenHfFolder(path);
}

// The newest checkpoint in the folder `checkpoints`.
absl::StatusOr<std::string> NewestCheckpoint(const std::string& checkpoints) {
  namespace fs = std::filesystem;
  const std::string latest = checkpoints + "/latest";
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(latest, error))) {
    if (io::IsDirectory(latest)) return latest;
    return absl::NotFoundError(fmt::format("{} points at \"{}\", which is not there", latest,
                                           fs::read_symlink(latest, error).string()));
  }
  // A run that was killed between its first checkpoint and the link has none.
  std::optional<int64_t> newest;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const auto step = ParseWhole<int64_t>(entry.path().filename().string());
    if (step && HoldsModel(entry.path().string())) {
      newest = std::max(newest.value_or(*step), *step);
    }
  }
  if (newest) return fmt::format("{}/{}", checkpoints, *newest);
  return absl::NotFoundError(fmt::format("{} has no checkpoint", checkpoints));
}

absl::StatusOr<OpenedModel> OpenPath(const std::string& path, const std::string& base) {
  if (!io::FileExists(path)) {
    const std::vector<std::string> presets = models::PresetNames();
    const std::string nearest = NearestName(path, presets);
    return absl::NotFoundError(fmt::format(
        "no model at {}{}; a model is a Hugging Face folder, a .gguf file, a checkpoint folder or "
        "random:PRESET[:SEED] with PRESET one of {}",
        Excerpt(path), nearest.empty() ? "" : "; the nearest preset is random:" + nearest,
        fmt::join(presets, ", ")));
  }
  if (!io::IsDirectory(path)) {
    if (path.ends_with(".safetensors")) {
      return absl::InvalidArgumentError(
          fmt::format("{} holds weights but no config.json; give the folder that has both", path));
    }
    return OpenGguf(path);
  }
  if (!HoldsModel(path)) {
    std::string checkpoints;
    if (io::IsDirectory(path + "/checkpoints")) {
      checkpoints = path + "/checkpoints";
    } else if (std::filesystem::path(path).lexically_normal().filename() == "checkpoints") {
      checkpoints = path;
    }
    if (!checkpoints.empty()) {
      MW_ASSIGN_OR_RETURN(const std::string dir, NewestCheckpoint(checkpoints));
      return OpenFolder(dir, base);
    }
  }
  return OpenFolder(path, base);
}

absl::Status VerifyCheckpoint(const std::string& dir) {
  const std::string manifest_path = dir + "/" + io::Manifest::kFileName;
  if (!io::FileExists(manifest_path)) return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(const io::Manifest manifest, io::Manifest::ReadFrom(dir));
  const absl::Status verified =
      manifest.Verify(dir, {kStateFile, kOptimizerFile, kAccumulatorFile});
  if (!absl::IsDataLoss(verified)) return verified;
  return absl::DataLossError(fmt::format("{}; where that was meant, remove {}",
                                         std::string(verified.message()), manifest_path));
}

}  // namespace

absl::StatusOr<OpenedModel> OpenModel(const std::string& text, const std::string& base) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "no model given; a model is a Hugging Face folder, a .gguf file, a checkpoint folder or "
        "random:PRESET[:SEED]");
  }
  std::string path = text;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  MW_ASSIGN_OR_RETURN(OpenedModel opened,
                      text.starts_with(kRandomPrefix) ? OpenRandom(text) : OpenPath(path, base));
  if (!base.empty() && !opened.adapter) {
    return absl::InvalidArgumentError(fmt::format(
        "--base is the base model of an adapter, and {} is no adapter (it has no {}): leave it out",
        Excerpt(text), kAdapterConfigFile));
  }
  opened.origin = text;
  // Those of an adapter's base model are there already.
  if (opened.adapter) return opened;
  std::error_code error;
  opened.base_name = text.starts_with(kRandomPrefix)
                         ? text
                         : std::filesystem::canonical(opened.path, error).string();
  MW_ASSIGN_OR_RETURN(opened.model, models::CreateModel(opened.config));
  return opened;
}

absl::Status TakeAdapter(const OpenedModel& opened, models::LoraOptions* lora) {
  if (!opened.adapter) return absl::OkStatus();
  const models::LoraOptions& has = opened.adapter->lora;
  if (!lora->enabled()) *lora = has;
  if (lora->SameAs(has)) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "the adapter {} has lora.rank={} lora.alpha={} lora.target_modules={} lora.use_rslora={}, "
      "which no setting changes: leave the lora keys out",
      opened.adapter->path, has.rank, has.alpha, has.target_modules, has.use_rslora));
}

absl::Status VerifyFiles(const OpenedModel& opened) {
  if (opened.adapter && opened.adapter->checkpoint) {
    const std::string& dir = opened.adapter->path;
    MW_RETURN_IF_ERROR(VerifyCheckpoint(dir));
    MW_RETURN_IF_ERROR(CheckSameBase(opened, SavedMetadata(dir), dir));
  }
  return opened.kind == OpenedModel::Kind::kCheckpoint ? VerifyCheckpoint(opened.path)
                                                       : absl::OkStatus();
}

}  // namespace mw::train
