// Reading and durable writing of files: what is published is complete.
#ifndef MESHWRIGHT_IO_FILE_UTIL_H_
#define MESHWRIGHT_IO_FILE_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/io/checksum.h"
#include "meshwright/io/temporary_path.h"

namespace mw::io {

// "cannot <action> <path>: <reason>", with the code that fits `error_number`.
// A full disk (ENOSPC, EDQUOT) is ResourceExhausted, a failing one (EIO) DataLoss.
absl::Status ErrnoStatus(int error_number, std::string_view action, const std::string& path);

bool FileExists(const std::string& path);  // follows links; any kind of entry
bool IsDirectory(const std::string& path);

// The whole file as bytes; of a pipe what its writers write.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// As ReadFile, of a file in a folder that a program wrote, where nothing waits for a pipe's writer.
// Errors: InvalidArgument for a folder, a device or a pipe.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path);

// Replaces `path` by `content` so that after a crash it holds the old or the new
// bytes: temporary file in the same folder, fsync, rename, fsync of the folder.
absl::Status WriteFile(const std::string& path, std::string_view content);

// Copies the bytes, with WriteFile's guarantee.
absl::StatusOr<FileDigest> CopyFile(const std::string& from, const std::string& to);

// Like `mkdir -p`. The new folders' parents are fsynced.
absl::Status MakeDirectories(const std::string& path);

// Like `rm -rf`: nothing there is fine.
absl::Status RemoveAll(const std::string& path);

// Flushes a file or folder to the disk.
absl::Status Sync(const std::string& path);

// Makes `link` a symbolic link to `target` (taken as it is: relative to the
// link's folder unless absolute). Atomic: a reader sees the old or the new target.
// Errors: FailedPrecondition when `link` is something else than a link.
absl::Status SwapSymlink(const std::string& target, const std::string& link);

// Sequential writer that checks every write, counts and checksums the bytes.
//
// The bytes go to `<path>.tmp-<pid>`; Finish flushes it to the disk and renames
// it to `path`. Without Finish the temporary file is removed and `path` is
// untouched. After an error every later call returns that error.
// Errors: FailedPrecondition while this process has another writer for the same path.
class FileWriter {
 public:
  static absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path);
  // Writes straight to `path` (a device, a pipe): no rename, no removal.
  static absl::StatusOr<std::unique_ptr<FileWriter>> CreateInPlace(const std::string& path);

  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Append(std::string_view text);
  // `name` of the digest is `path`.
  absl::StatusOr<FileDigest> Finish();

  uint64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

 private:
  FileWriter(std::string path, std::unique_ptr<TemporaryPath> temporary, int fd);
  absl::Status Flush();
  absl::Status WriteThrough(std::span<const std::byte> bytes);

  std::string path_;
  std::unique_ptr<TemporaryPath> temporary_;  // null when in place
  int fd_;
  bool finished_ = false;
  uint64_t size_bytes_ = 0;
  Checksum checksum_;
  std::string buffer_;
  absl::Status status_;
};

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_FILE_UTIL_H_
