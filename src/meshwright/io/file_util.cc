#include "meshwright/io/file_util.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/mapped_file.h"

namespace mw::io {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
// One write(2) moves at most 0x7ffff000 bytes on Linux.
constexpr size_t kMaxWriteBytes = size_t{1} << 30;
// Of what has no size: a pipe, or a device, which may have no end.
constexpr size_t kMaxStreamBytes = size_t{1} << 28;

absl::StatusCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case EIO:
      return absl::StatusCode::kDataLoss;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return absl::StatusCode::kInvalidArgument;
    case EBUSY:
    case ENOTEMPTY:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kUnknown;
  }
}

absl::Status CheckWritten(absl::StatusOr<FileDigest> digest) { return std::move(digest).status(); }

}  // namespace

absl::Status ErrnoStatus(int error_number, std::string_view action, const std::string& path) {
  std::string reason;
  switch (error_number) {
    case ENOSPC:
      reason = "the disk is full (ENOSPC)";
      break;
    case EDQUOT:
      reason = "the disk quota is used up (EDQUOT)";
      break;
    case EIO:
      reason = "the disk reports an input/output error (EIO)";
      break;
    case EROFS:
      reason = "the file system is read-only (EROFS)";
      break;
    default:
      reason = std::system_category().message(error_number);
  }
  return absl::Status(CodeOf(error_number), fmt::format("cannot {} {}: {}", action, path, reason));
}

bool FileExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  std::string content;
  struct stat info;
  const bool is_regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (is_regular) content.reserve(static_cast<size_t>(info.st_size));
  std::string chunk(kBufferBytes, '\0');
  while (true) {
    const ssize_t got = read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      close(fd);
      return ErrnoStatus(error, "read", path);
    }
    if (got == 0) break;
    if (!is_regular && content.size() + static_cast<size_t>(got) > kMaxStreamBytes) {
      close(fd);
      return absl::InvalidArgumentError(
          fmt::format("cannot read {}: it is no regular file and does not end within {} MiB", path,
                      kMaxStreamBytes >> 20));
    }
    content.append(chunk, 0, static_cast<size_t>(got));
  }
  close(fd);
  return content;
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::Status WriteFile(const std::string& path, std::string_view content) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> writer, FileWriter::Create(path));
  MW_RETURN_IF_ERROR(writer->Append(content));
  return CheckWritten(writer->Finish());
}

absl::StatusOr<FileDigest> CopyFile(const std::string& from, const std::string& to) {
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> source, MappedFile::Open(from));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> writer, FileWriter::Create(to));
  MW_RETURN_IF_ERROR(writer->Append(source->bytes()));
  return writer->Finish();
}

absl::Status MakeDirectories(const std::string& path) {
  if (IsDirectory(path)) return absl::OkStatus();
  const std::filesystem::path as_path(path);
  // "a/b/" has an empty last part; its parent is "a/b".
  if (as_path.has_relative_path()) MW_RETURN_IF_ERROR(MakeDirectories(ParentOf(path)));
  if (!as_path.has_filename()) return absl::OkStatus();
  if (mkdir(path.c_str(), 0777) != 0 && !(errno == EEXIST && IsDirectory(path))) {
    return ErrnoStatus(errno, "make the folder", path);
  }
  return Sync(ParentOf(path));
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? ErrnoStatus(error.value(), "remove", path) : absl::OkStatus();
}

absl::Status Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  int error = fsync(fd) == 0 ? 0 : errno;
  // Some file systems have no fsync for folders; there is nothing more to do then.
  if (error == EINVAL || error == ENOTSUP) error = 0;
  close(fd);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "flush to the disk", path);
}

absl::Status SwapSymlink(const std::string& target, const std::string& link) {
  struct stat info;
  if (lstat(link.c_str(), &info) == 0 && !S_ISLNK(info.st_mode)) {
    return absl::FailedPreconditionError(fmt::format(
        "cannot make {} a link to {}: there is a file or folder of that name", link, target));
  }
  const std::string temporary = fmt::format("{}.tmp-{}", link, getpid());
  unlink(temporary.c_str());
  if (symlink(target.c_str(), temporary.c_str()) != 0) {
    return ErrnoStatus(errno, "make the link", temporary);
  }
  if (rename(temporary.c_str(), link.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    return ErrnoStatus(error, "replace the link", link);
  }
  return Sync(ParentOf(link));
}

FileWriter::FileWriter(std::string path, std::unique_ptr<TemporaryPath> temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {
  buffer_.reserve(kBufferBytes);
}

absl::StatusOr<std::unique_ptr<FileWriter>> FileWriter::Create(const std::string& path) {
  // A rename would fail at the very end, after everything is written.
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) return ErrnoStatus(EISDIR, "write", path);
    return absl::InvalidArgumentError(fmt::format(
        "cannot write {}: it is a device or a pipe, which a finished file would replace", path));
  }
  MW_ASSIGN_OR_RETURN(std::unique_ptr<TemporaryPath> temporary, TemporaryPath::Claim(path));
  const int fd = open(temporary->path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  return std::unique_ptr<FileWriter>(new FileWriter(path, std::move(temporary), fd));
}

absl::StatusOr<std::unique_ptr<FileWriter>> FileWriter::CreateInPlace(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  return std::unique_ptr<FileWriter>(new FileWriter(path, nullptr, fd));
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
  if (!finished_ && temporary_ != nullptr) unlink(temporary_->path().c_str());
}

absl::Status FileWriter::Append(std::string_view text) {
  return Append(std::as_bytes(std::span(text.data(), text.size())));
}

absl::Status FileWriter::Append(std::span<const std::byte> bytes) {
  if (finished_) {
    return absl::FailedPreconditionError(fmt::format("{} is already finished", path_));
  }
  MW_RETURN_IF_ERROR(status_);
  size_bytes_ += bytes.size();
  checksum_.Update(bytes);
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    MW_RETURN_IF_ERROR(Flush());
    if (bytes.size() >= kBufferBytes) return WriteThrough(bytes);
  }
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return absl::OkStatus();
}

absl::Status FileWriter::Flush() {
  MW_RETURN_IF_ERROR(WriteThrough(std::as_bytes(std::span(buffer_.data(), buffer_.size()))));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status FileWriter::WriteThrough(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = write(fd_, bytes.data(), std::min(bytes.size(), kMaxWriteBytes));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return status_ = ErrnoStatus(errno, "write", path_);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> FileWriter::Finish() {
  if (finished_) {
    return absl::FailedPreconditionError(fmt::format("{} is already finished", path_));
  }
  MW_RETURN_IF_ERROR(status_);
  MW_RETURN_IF_ERROR(Flush());
  const bool in_place = temporary_ == nullptr;
  // Pipes and devices have no fsync (EINVAL).
  if (fsync(fd_) != 0 && !(in_place && errno == EINVAL)) {
    return status_ = ErrnoStatus(errno, "flush to the disk", path_);
  }
  // Network file systems report a failed write only here.
  if (close(std::exchange(fd_, -1)) != 0) return status_ = ErrnoStatus(errno, "close", path_);
  if (!in_place) {
    if (rename(temporary_->path().c_str(), path_.c_str()) != 0) {
      return status_ = ErrnoStatus(errno, "publish", path_);
    }
    finished_ = true;
    MW_RETURN_IF_ERROR(Sync(ParentOf(path_)));
  }
  finished_ = true;
  temporary_.reset();
  return FileDigest{path_, size_bytes_, checksum_.HexDigest()};
}

}  // namespace mw::io
