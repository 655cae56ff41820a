// Safetensors files: reader and streaming writer.
//
// Format: u64 little-endian header length N, N bytes of JSON
// {"name": {"dtype", "shape", "data_offsets": [begin, end]}, …, "__metadata__": {string: string}},
// then the bytes of the tensors without gaps.
// Source: https://github.com/huggingface/safetensors#format
#ifndef MESHWRIGHT_IO_SAFETENSORS_H_
#define MESHWRIGHT_IO_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/mapped_file.h"
#include "meshwright/io/tensor_source.h"

namespace mw::io {

// "BF16" of kBF16, and back (nullopt where HostTensor has no such type: F8_E4M3, I16, …).
std::string_view SafetensorsDTypeName(DType dtype);
std::optional<DType> ParseSafetensorsDType(std::string_view name);

using SafetensorsMetadata = std::map<std::string, std::string>;

class SafetensorsFile : public TensorSource {
 public:
  // Maps the file and checks all of its header: length against the file's size, JSON,
  // duplicate names, dtypes, extents in range, without gaps or overlaps, equal to
  // shape times element size. Afterwards Read cannot run out of the file.
  // Errors: DataLoss (damaged), Unimplemented (dtype), each naming file, tensor and reason.
  static absl::StatusOr<std::shared_ptr<SafetensorsFile>> Open(const std::string& path);

  const std::string& path() const override { return file_->path(); }
  const std::vector<std::string>& names() const override { return names_; }
  absl::StatusOr<TensorInfo> info(std::string_view name) const override;
  // Zero-copy unless the header's length leaves the bytes unaligned for the dtype.
  absl::StatusOr<HostTensor> Read(std::string_view name) const override;

  const SafetensorsMetadata& metadata() const { return metadata_; }
  // Sum of the tensors' bytes.
  uint64_t data_bytes() const { return data_bytes_; }

 private:
  struct Entry {
    DType dtype;
    Dims dims;
    uint64_t begin;  // from the start of the file
  };

  SafetensorsFile() = default;
  absl::Status ParseHeader();

  std::shared_ptr<const MappedFile> file_;
  std::vector<std::string> names_;
  std::map<std::string, Entry, std::less<>> entries_;
  SafetensorsMetadata metadata_;
  uint64_t data_bytes_ = 0;
};

// The order in which the reference implementation lays tensors out: by element
// type, widest first, then by name. Same order, same bytes as `safetensors.serialize`.
void SortInReferenceOrder(std::vector<TensorSpec>& specs);

// What comes before the tensors' bytes: the length and the padded JSON. `what` is what errors call
// the file. Errors: as SafetensorsWriter::Create.
absl::StatusOr<std::string> SafetensorsHeader(const std::string& what,
                                              const std::vector<TensorSpec>& specs,
                                              const SafetensorsMetadata& metadata = {});

// Writes a file tensor by tensor: never more than one in memory.
class SafetensorsWriter {
 public:
  // Lays `specs` out in the given order and writes the header, which is padded with spaces so
  // that the data starts at a multiple of 8, as the reference implementation does.
  // Errors: InvalidArgument for a duplicate or reserved name, text that is not UTF-8, sizes out of
  // range.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, std::vector<TensorSpec> specs,
      const SafetensorsMetadata& metadata = {});

  // REQUIRES (else InvalidArgument): the next spec in order, with its dtype and dims.
  absl::Status Write(std::string_view name, const HostTensor& tensor);

  // Publishes the file. Errors: FailedPrecondition naming the first tensor not yet written.
  absl::StatusOr<FileDigest> Finish();

 private:
  SafetensorsWriter(std::vector<TensorSpec> specs, std::unique_ptr<FileWriter> file)
      : specs_(std::move(specs)), file_(std::move(file)) {}

  std::vector<TensorSpec> specs_;
  size_t next_ = 0;
  std::unique_ptr<FileWriter> file_;
};

// All at once, in reference order; each is let go once it is written.
absl::StatusOr<FileDigest> WriteSafetensors(const std::string& path,
                                            std::map<std::string, HostTensor> tensors,
                                            const SafetensorsMetadata& metadata = {});

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_SAFETENSORS_H_
