#include "meshwright/io/safetensors_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/checked_size.h"
#include "meshwright/io/json_util.h"
#include "meshwright/io/tensor_sequence.h"

namespace mw::io {
namespace {

// A shard's name must not lead out of the index's folder.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShardedSafetensors>> ShardedSafetensors::Open(
    const std::string& index_path) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(index_path));
  MW_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(text, index_path));
  const auto damaged = [&](std::string_view reason) {
    return absl::DataLossError(fmt::format("{}: {}", index_path, reason));
  };
  const auto weight_map = json.find("weight_map");
  if (weight_map == json.end() || !weight_map->is_object()) {
    return damaged("\"weight_map\" is not an object");
  }
  std::shared_ptr<ShardedSafetensors> set(new ShardedSafetensors());
  set->path_ = index_path;
  const std::string dir = ParentOf(index_path);
  for (const auto& [name, value] : weight_map->items()) {
    if (!value.is_string() || !IsPlainFileName(value.get_ref<const std::string&>())) {
      return damaged(fmt::format("tensor \"{}\": {} is not a plain file name", name, value.dump()));
    }
    const std::string shard_name = value.get<std::string>();
    std::shared_ptr<SafetensorsFile>& shard = set->shards_[shard_name];
    if (shard == nullptr) {
      absl::StatusOr<std::shared_ptr<SafetensorsFile>> opened =
          SafetensorsFile::Open(dir + "/" + shard_name);
      if (absl::IsNotFound(opened.status())) {
        return absl::NotFoundError(fmt::format("{}: shard {} with tensor \"{}\" is missing",
                                               index_path, shard_name, name));
      }
      MW_RETURN_IF_ERROR(opened.status());
      shard = *std::move(opened);
    }
    if (!shard->Contains(name)) {
      return absl::NotFoundError(fmt::format("{}: tensor \"{}\" should be in {}, which lacks it",
                                             index_path, name, shard_name));
    }
    set->names_.push_back(name);
    set->shard_of_[name] = shard.get();
  }
  std::sort(set->names_.begin(), set->names_.end());
  return set;
}

absl::StatusOr<TensorInfo> ShardedSafetensors::info(std::string_view name) const {
  const auto it = shard_of_.find(name);
  if (it == shard_of_.end()) return NoSuchTensor(name);
  return it->second->info(name);
}

absl::StatusOr<HostTensor> ShardedSafetensors::Read(std::string_view name) const {
  const auto it = shard_of_.find(name);
  if (it == shard_of_.end()) return NoSuchTensor(name);
  return it->second->Read(name);
}

std::vector<std::string> ShardedSafetensors::shard_names() const {
  std::vector<std::string> result;
  for (const auto& [name, shard] : shards_) result.push_back(name);
  return result;
}

absl::StatusOr<std::unique_ptr<ShardedSafetensorsWriter>> ShardedSafetensorsWriter::Create(
    const std::string& dir, std::vector<TensorSpec> specs, ShardOptions options) {
  if (!IsPlainFileName(options.base)) {
    return absl::InvalidArgumentError(
        fmt::format("cannot write to {}: \"{}\" is not a plain file name", dir, options.base));
  }
  std::unique_ptr<ShardedSafetensorsWriter> writer(new ShardedSafetensorsWriter());
  writer->dir_ = dir;
  writer->options_ = std::move(options);
  writer->shards_.emplace_back();
  uint64_t shard_bytes = 0;
  for (TensorSpec& spec : specs) {
    const auto bytes = CheckedProduct(spec.dims, ByteSize(spec.dtype));
    if (!bytes || !CheckedAdd(shard_bytes, *bytes)) {
      return absl::InvalidArgumentError(
          fmt::format("cannot write tensor \"{}\" {} to {}: too large", spec.name,
                      DimsToString(spec.dims), dir));
    }
    if (!writer->shards_.back().empty() &&
        shard_bytes + *bytes > writer->options_.max_shard_bytes) {
      writer->shards_.emplace_back();
      shard_bytes = 0;
    }
    shard_bytes += *bytes;
    if (!writer->weight_map_.emplace(spec.name, "").second) {
      return absl::InvalidArgumentError(
          fmt::format("cannot write to {}: there are two tensors \"{}\"", dir, spec.name));
    }
    writer->shards_.back().push_back(std::move(spec));
  }
  writer->weight_map_.clear();
  MW_RETURN_IF_ERROR(writer->OpenShard());
  return writer;
}

std::string ShardedSafetensorsWriter::shard_name() const {
  if (shards_.size() == 1) return options_.base + ".safetensors";
  return fmt::format("{}-{:05}-of-{:05}.safetensors", options_.base, shard_ + 1, shards_.size());
}

absl::Status ShardedSafetensorsWriter::OpenShard() {
  MW_ASSIGN_OR_RETURN(writer_, SafetensorsWriter::Create(dir_ + "/" + shard_name(), shards_[shard_],
                                                         options_.metadata));
  return absl::OkStatus();
}

absl::Status ShardedSafetensorsWriter::FinishShard() {
  MW_ASSIGN_OR_RETURN(FileDigest digest, writer_->Finish());
  digest.name = shard_name();
  digests_.push_back(std::move(digest));
  return absl::OkStatus();
}

absl::Status ShardedSafetensorsWriter::Write(std::string_view name, const HostTensor& tensor) {
  if (written_in_shard_ == shards_[shard_].size() && shard_ + 1 < shards_.size()) {
    MW_RETURN_IF_ERROR(FinishShard());
    ++shard_;
    written_in_shard_ = 0;
    MW_RETURN_IF_ERROR(OpenShard());
  }
  MW_RETURN_IF_ERROR(writer_->Write(name, tensor));
  ++written_in_shard_;
  total_bytes_ += tensor.num_bytes();
  weight_map_.emplace(name, shard_name());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FileDigest>> ShardedSafetensorsWriter::Finish() {
  // A later shard that was never begun is as unfinished as the current one.
  if (written_in_shard_ == shards_[shard_].size() && shard_ + 1 < shards_.size()) {
    MW_RETURN_IF_ERROR(CheckAllWritten(dir_, shards_[shard_ + 1], 0));
  }
  MW_RETURN_IF_ERROR(FinishShard());
  if (shards_.size() == 1) return std::move(digests_);
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes_}}},
                                {"weight_map", weight_map_}};
  const std::string name = options_.base + ".safetensors.index.json";
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> file,
                      FileWriter::Create(dir_ + "/" + name));
  MW_RETURN_IF_ERROR(file->Append(index.dump(2) + "\n"));
  MW_ASSIGN_OR_RETURN(FileDigest digest, file->Finish());
  digest.name = name;
  digests_.push_back(std::move(digest));
  return std::move(digests_);
}

}  // namespace mw::io
