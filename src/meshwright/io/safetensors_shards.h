// Sharded safetensors: `model.safetensors.index.json` and the files it names.
#ifndef MESHWRIGHT_IO_SAFETENSORS_SHARDS_H_
#define MESHWRIGHT_IO_SAFETENSORS_SHARDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "meshwright/io/safetensors.h"

namespace mw::io {

class ShardedSafetensors : public TensorSource {
 public:
  // Opens the index and every shard in its folder.
  // Errors: NotFound naming the shard or the tensor that the index promises and the disk
  // lacks; DataLoss for a damaged index or shard.
  static absl::StatusOr<std::shared_ptr<ShardedSafetensors>> Open(const std::string& index_path);

  const std::string& path() const override { return path_; }
  const std::vector<std::string>& names() const override { return names_; }
  absl::StatusOr<TensorInfo> info(std::string_view name) const override;
  absl::StatusOr<HostTensor> Read(std::string_view name) const override;

  // Plain file names, sorted.
  std::vector<std::string> shard_names() const;

 private:
  ShardedSafetensors() = default;

  std::string path_;
  std::vector<std::string> names_;
  std::map<std::string, std::shared_ptr<SafetensorsFile>> shards_;
  std::map<std::string, const SafetensorsFile*, std::less<>> shard_of_;
};

struct ShardOptions {
  uint64_t max_shard_bytes = 5'000'000'000;  // a larger tensor gets a shard of its own
  std::string base = "model";
  SafetensorsMetadata metadata = {{"format", "pt"}};  // transformers asks for "format"
};

// Writes a model's tensors into `<base>.safetensors`, or, where they exceed the limit, into
// `<base>-00001-of-0000N.safetensors` … and `<base>.safetensors.index.json`, whose weight
// map and total_size come from the tensors really written.
class ShardedSafetensorsWriter {
 public:
  // `dir` exists and holds no older model of this base (write into an AtomicDirectory).
  static absl::StatusOr<std::unique_ptr<ShardedSafetensorsWriter>> Create(
      const std::string& dir, std::vector<TensorSpec> specs, ShardOptions options = {});

  // REQUIRES (else InvalidArgument): the next spec in order, with its dtype and dims.
  absl::Status Write(std::string_view name, const HostTensor& tensor);

  // The digests' names are relative to `dir`; the index, if any, comes last.
  absl::StatusOr<std::vector<FileDigest>> Finish();

 private:
  ShardedSafetensorsWriter() = default;
  std::string shard_name() const;
  absl::Status OpenShard();
  absl::Status FinishShard();

  std::string dir_;
  ShardOptions options_;
  std::vector<std::vector<TensorSpec>> shards_;
  size_t shard_ = 0;
  size_t written_in_shard_ = 0;
  std::unique_ptr<SafetensorsWriter> writer_;
  uint64_t total_bytes_ = 0;
  std::map<std::string, std::string> weight_map_;
  std::vector<FileDigest> digests_;
};

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_SAFETENSORS_SHARDS_H_
