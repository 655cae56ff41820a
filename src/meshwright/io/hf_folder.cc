#include "meshwright/io/hf_folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/json_util.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/io/safetensors_shards.h"

namespace mw::io {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};

}  // namespace

HfFolder::HfFolder() = default;
HfFolder::~HfFolder() = default;

absl::StatusOr<std::shared_ptr<HfFolder>> HfFolder::Open(const std::string& dir) {
  if (!FileExists(dir)) {
    return absl::NotFoundError(fmt::format("model folder {} does not exist", dir));
  }
  if (!IsDirectory(dir)) {
    return absl::InvalidArgumentError(fmt::format("{} is not a folder", dir));
  }
  std::shared_ptr<HfFolder> folder(new HfFolder());
  folder->dir_ = dir;
  const std::string config_path = dir + "/config.json";
  if (!FileExists(config_path)) {
    return absl::NotFoundError(
        fmt::format("model folder {} has no config.json; is it a Hugging Face model?", dir));
  }
  MW_ASSIGN_OR_RETURN(folder->config_text_, ReadRegularFile(config_path));
  MW_ASSIGN_OR_RETURN(nlohmann::json config, ParseJsonObject(folder->config_text_, config_path));
  folder->config_ = std::make_unique<nlohmann::json>(std::move(config));

  const bool has_single = FileExists(dir + "/" + kSingleFile);
  const bool has_index = FileExists(dir + "/" + kIndexFile);
  if (has_single && has_index) {
    return absl::FailedPreconditionError(
        fmt::format("model folder {} has both {} and {}; remove the one that is stale", dir,
                    kSingleFile, kIndexFile));
  }
  if (has_single) {
    MW_ASSIGN_OR_RETURN(folder->weights_, SafetensorsFile::Open(dir + "/" + kSingleFile));
    folder->weight_files_ = {kSingleFile};
  } else if (has_index) {
    MW_ASSIGN_OR_RETURN(const std::shared_ptr<ShardedSafetensors> shards,
                        ShardedSafetensors::Open(dir + "/" + kIndexFile));
    folder->weight_files_ = shards->shard_names();
    folder->weight_files_.push_back(kIndexFile);
    folder->weights_ = shards;
  } else if (FileExists(dir + "/pytorch_model.bin") ||
             FileExists(dir + "/pytorch_model.bin.index.json")) {
    return absl::NotFoundError(
        fmt::format("model folder {} has only pickled weights (pytorch_model.bin); save it as "
                    "safetensors first",
                    dir));
  } else {
    return absl::NotFoundError(
        fmt::format("model folder {} has neither {} nor {}", dir, kSingleFile, kIndexFile));
  }
  folder->tokenizer_files_ = ListTokenizerFiles(dir);
  return folder;
}

absl::StatusOr<TensorInfo> HfFolder::info(std::string_view name) const {
  return weights_->info(name);
}

absl::StatusOr<HostTensor> HfFolder::Read(std::string_view name) const {
  return weights_->Read(name);
}

absl::Status HfFolder::RequireTokenizer() const {
  if (FileExists(dir_ + "/tokenizer.json")) return absl::OkStatus();
  return absl::NotFoundError(
      fmt::format("model folder {} has no tokenizer.json{}", dir_,
                  tokenizer_files_.empty() ? "" : fmt::format("; it has {}", tokenizer_files_[0])));
}

absl::StatusOr<std::vector<FileDigest>> HfFolder::CopyTokenizerFiles(const std::string& dir) const {
  std::vector<FileDigest> digests;
  for (const std::string& name : tokenizer_files_) {
    MW_ASSIGN_OR_RETURN(FileDigest digest, CopyFile(dir_ + "/" + name, dir + "/" + name));
    digest.name = name;
    digests.push_back(std::move(digest));
  }
  return digests;
}

std::vector<std::string> ListTokenizerFiles(const std::string& dir) {
  std::vector<std::string> found;
  for (const char* name : kTokenizerFiles) {
    if (FileExists(dir + "/" + name)) found.push_back(name);
  }
  return found;
}

}  // namespace mw::io
