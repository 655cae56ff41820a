#include "meshwright/io/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "meshwright/base/nearest_name.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/gguf.h"
#include "meshwright/io/hf_folder.h"
#include "meshwright/io/mapped_file.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/io/safetensors_shards.h"

namespace mw::io {

bool TensorSource::Contains(std::string_view name) const {
  return std::binary_search(names().begin(), names().end(), name);
}

absl::Status TensorSource::ReadInto(std::string_view name, DType dtype,
                                    std::span<std::byte> out) const {
  MW_ASSIGN_OR_RETURN(const HostTensor tensor, Read(name));
  MW_RETURN_IF_ERROR(CheckSize(name, tensor.dims(), dtype, out));
  tensor.ConvertInto(dtype, out);
  return absl::OkStatus();
}

absl::Status TensorSource::CheckSize(std::string_view name, const Dims& dims, DType dtype,
                                     std::span<std::byte> out) const {
  const size_t bytes = static_cast<size_t>(NumElements(dims)) * ByteSize(dtype);
  if (out.size() == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}: tensor \"{}\" as {}{} takes {} bytes, not {}",
                                                path(), name, DTypeName(dtype), DimsToString(dims),
                                                bytes, out.size()));
}

absl::Status TensorSource::NoSuchTensor(std::string_view name) const {
  if (names().empty()) {
    return absl::NotFoundError(fmt::format("{}: no tensor \"{}\"; it has none", path(), name));
  }
  return absl::NotFoundError(fmt::format("{}: no tensor \"{}\" among its {}{}", path(), name,
                                         names().size(), NearestNote(name, names())));
}

absl::StatusOr<std::shared_ptr<TensorSource>> OpenTensorSource(const std::string& path) {
  if (IsDirectory(path)) return HfFolder::Open(path);
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()), file->size());
  if (bytes.starts_with("GGUF")) return GgufFile::Open(path);
  if (bytes.starts_with("{")) return ShardedSafetensors::Open(path);
  if (bytes.size() > 8 && bytes[8] == '{') return SafetensorsFile::Open(path);
  return absl::InvalidArgumentError(
      fmt::format("{} is neither safetensors, nor a safetensors index, nor GGUF", path));
}

}  // namespace mw::io
