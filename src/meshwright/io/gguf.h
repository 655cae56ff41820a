// GGUF files: reader of versions 2 and 3, streaming writer of version 3.
//
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#ifndef MESHWRIGHT_IO_GGUF_H_
#define MESHWRIGHT_IO_GGUF_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/ggml_quants.h"
#include "meshwright/io/gguf_metadata.h"
#include "meshwright/io/mapped_file.h"
#include "meshwright/io/tensor_source.h"

namespace mw::io {

// Knows nothing of models: tensor names, and the order of q/k rows, are the file's.
class GgufFile : public TensorSource {
 public:
  // Maps the file and checks everything that Read relies on: counts and lengths against the
  // file's size, types, dims, alignment, offsets in range and without overlap, duplicate keys and
  // names. Errors: DataLoss (damaged), Unimplemented (version, byte order, tensor type), naming
  // file and tensor.
  static absl::StatusOr<std::shared_ptr<GgufFile>> Open(const std::string& path);

  const std::string& path() const override { return file_->path(); }
  const std::vector<std::string>& names() const override { return names_; }
  // Dims are row-major, as in the Hugging Face tensor (the file has them reversed).
  absl::StatusOr<TensorInfo> info(std::string_view name) const override;
  // Plain types: a view. Quantized types: dequantized to an owned f32 tensor.
  absl::StatusOr<HostTensor> Read(std::string_view name) const override;
  absl::Status ReadInto(std::string_view name, DType dtype,
                        std::span<std::byte> out) const override;

  uint32_t version() const { return version_; }
  const GgufMetadata& metadata() const { return metadata_; }
  // In the file's order (names() is sorted).
  const std::vector<std::string>& file_order() const { return file_order_; }

 private:
  struct Entry {
    const GgmlType* type;
    Dims dims;
    uint64_t begin;  // from the start of the file
    uint64_t bytes;
  };

  GgufFile() = default;
  absl::Status Parse();
  absl::Status CheckExtents(uint64_t data_begin);

  std::shared_ptr<const MappedFile> file_;
  uint32_t version_ = 0;
  GgufMetadata metadata_;
  std::vector<std::string> names_;
  std::vector<std::string> file_order_;
  std::map<std::string, Entry, std::less<>> entries_;
};

// Writes a file tensor by tensor, in the plain types (f32, f16, bf16, f64, s8, s32, s64).
class GgufWriter {
 public:
  // Writes header, metadata and tensor infos. The data's alignment is the metadata's
  // `general.alignment` (u32), else the format's default of 32.
  // Errors: InvalidArgument for a duplicate name, a dtype that GGUF lacks, more than 4 dims, a bad
  // alignment.
  static absl::StatusOr<std::unique_ptr<GgufWriter>> Create(const std::string& path,
                                                            const GgufMetadata& metadata,
                                                            std::vector<TensorSpec> specs);

  // REQUIRES (else InvalidArgument): the next spec in order, with its dtype and dims.
  absl::Status Write(std::string_view name, const HostTensor& tensor);

  // Publishes the file. Errors: FailedPrecondition naming the first tensor not yet written.
  absl::StatusOr<FileDigest> Finish();

 private:
  GgufWriter(std::vector<TensorSpec> specs, uint64_t alignment, std::unique_ptr<FileWriter> file)
      : specs_(std::move(specs)), alignment_(alignment), file_(std::move(file)) {}

  std::vector<TensorSpec> specs_;
  uint64_t alignment_;
  size_t next_ = 0;
  std::unique_ptr<FileWriter> file_;
};

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_GGUF_H_
