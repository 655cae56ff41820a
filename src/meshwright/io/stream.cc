#include "meshwright/io/stream.h"

#include <cerrno>
#include <utility>

#include "meshwright/io/file_util.h"

namespace mw::io {

absl::StatusOr<std::unique_ptr<Stream>> Stream::Append(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) return ErrnoStatus(errno, "open", path);
  return std::unique_ptr<Stream>(new Stream(file, path, true));
}

absl::Status Stream::Write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) {
    return ErrnoStatus(errno, "write", path_);
  }
  return absl::OkStatus();
}

absl::Status Stream::Flush() {
  return std::fflush(file_) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "write", path_);
}

absl::Status Stream::Close() {
  if (!std::exchange(owned_, false)) return absl::OkStatus();
  return std::fclose(file_) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "write", path_);
}

}  // namespace mw::io
