#include "meshwright/train/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/train/checkpoint.h"

namespace mw::train {
namespace {

namespace fs = std::filesystem;

// The run whose checkpoint, or whose folder of checkpoints, `path` is; "" when it is neither.
std::string RunOfCheckpoint(const std::string& path) {
  fs::path at = fs::path(path).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  if (io::FileExists((at / kStateFile).string())) at = at.parent_path();
  if (at.filename() != "checkpoints") return "";
  const std::string run = at.has_parent_path() ? at.parent_path().string() : ".";
  const auto found = FindLatestCheckpoint(run, nullptr);
  return found.ok() && *found ? run : "";
}

}  // namespace

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status FolderLock::Lock(const std::string& dir) {
  fd_ = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) return io::ErrnoStatus(errno, "open", dir);
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(fmt::format(
        "another run is writing into {}: wait for its end, or give another folder", dir));
  }
  return absl::OkStatus();
}

absl::Status CheckOutFolder(const std::string& out, bool resume) {
  if (out.empty()) return absl::InvalidArgumentError("the output folder's name is empty");
  if (io::FileExists(out)) {
    if (!io::IsDirectory(out)) {
      return absl::FailedPreconditionError(fmt::format("{} is not a folder", out));
    }
    std::error_code error;
    const bool empty = fs::is_empty(out, error);
    if (error) return io::ErrnoStatus(error.value(), "read", out);
    if (const std::string run = RunOfCheckpoint(out); !run.empty()) {
      return absl::FailedPreconditionError(
          fmt::format("{} belongs to the checkpoints of the run in {}: give --out {} --resume to "
                      "continue that run, or another folder",
                      out, run, run));
    }
    if (!empty && !resume) {
      FolderLock probe;
      MW_RETURN_IF_ERROR(probe.Lock(out));
      std::vector<std::string> notes;
      MW_ASSIGN_OR_RETURN(const std::optional<FoundCheckpoint> found,
                          FindLatestCheckpoint(out, &notes));
      return absl::FailedPreconditionError(
          found ? fmt::format("{} is not empty: give --resume to continue the run in it, or "
                              "another folder",
                              out)
                : fmt::format("{} is not empty and holds no checkpoint to resume: remove it, or "
                              "give another folder",
                              out));
    }
  }
  return CheckWritable(out);
}

absl::Status CheckMetricsFile(const std::string& out) {
  const std::string path = out + "/metrics.jsonl";
  std::error_code error;
  if (!fs::exists(path, error) || fs::is_regular_file(path, error)) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "{} is no regular file, so the records of the run cannot be continued in it: remove it",
      path));
}

absl::Status CheckWritable(const std::string& path) {
  // Folders that are not there yet, the outermost last.
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path at = fs::absolute(path, error).lexically_normal(); !fs::exists(at, error);
       at = at.parent_path()) {
    if (at.has_filename()) missing.push_back(at);
    if (at == at.parent_path()) break;
  }
  absl::Status status;
  std::vector<fs::path> made;
  for (auto it = missing.rbegin(); it != missing.rend() && status.ok(); ++it) {
    if (fs::create_directory(*it, error)) {
      made.push_back(*it);
    } else {
      status = io::ErrnoStatus(error.value(), "create the folder", it->string());
    }
  }
  if (status.ok()) {
    std::string probe = (fs::path(path) / ".writable-XXXXXX").string();
    const int fd = ::mkstemp(probe.data());
    if (fd < 0) {
      status = io::ErrnoStatus(errno, "write into", path);
    } else {
      ::close(fd);
      ::unlink(probe.c_str());
    }
  }
  for (auto it = made.rbegin(); it != made.rend(); ++it) fs::remove(*it, error);
  return status;
}

}  // namespace mw::train
