// MappedFile: a file mapped read-only into memory.
#ifndef MESHWRIGHT_IO_MAPPED_FILE_H_
#define MESHWRIGHT_IO_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace mw::io {

// The bytes of a file as they were at Open. Views into it keep it alive through
// the shared pointer. The file must not be truncated while it is mapped (writers
// here replace files by rename, which leaves the mapped one intact).
class MappedFile {
 public:
  // Errors: NotFound, PermissionDenied, …, naming the path; InvalidArgument for a
  // directory or a device.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_MAPPED_FILE_H_
