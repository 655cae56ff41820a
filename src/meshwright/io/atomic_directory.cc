#include "meshwright/io/atomic_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"

namespace mw::io {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr std::string_view kReplacedMark = ".replaced-";

absl::Status SyncTree(const std::string& dir) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(dir, error), end;
  for (; !error && it != end; it.increment(error)) {
    std::error_code kind_error;
    if (it->is_symlink(kind_error)) continue;
    if (it->is_regular_file(kind_error) || it->is_directory(kind_error)) {
      MW_RETURN_IF_ERROR(Sync(it->path().string()));
    }
  }
  if (error) return ErrnoStatus(error.value(), "list", dir);
  return Sync(dir);
}

// The pid in "<stem><mark><pid>", or -1; `stem` is set when it is one.
long PidAfter(const std::string& name, std::string_view mark, std::string* stem = nullptr) {
  const size_t at = name.rfind(mark);
  if (at == std::string::npos || at == 0) return -1;
  const char* begin = name.data() + at + mark.size();
  const char* end = name.data() + name.size();
  long pid = -1;
  const auto [parsed, error] = std::from_chars(begin, end, pid);
  if (error != std::errc() || parsed != end || *begin == '-') return -1;
  if (stem != nullptr) *stem = name.substr(0, at);
  return pid;
}

bool IsAlive(long pid) {
  return pid > 0 && (kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicDirectory>> AtomicDirectory::Create(const std::string& name) {
  const std::string absolute = AbsolutePath(name);
  struct stat info;
  if (lstat(absolute.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(
        fmt::format("cannot write the folder {}: there is a file or link of that name", name));
  }
  MW_RETURN_IF_ERROR(MakeDirectories(ParentOf(absolute)));
  MW_ASSIGN_OR_RETURN(std::unique_ptr<TemporaryPath> temporary, TemporaryPath::Claim(absolute));
  MW_RETURN_IF_ERROR(RemoveAll(temporary->path()));
  if (mkdir(temporary->path().c_str(), 0777) != 0) {
    return ErrnoStatus(errno, "make the folder", temporary->path());
  }
  return std::unique_ptr<AtomicDirectory>(new AtomicDirectory(absolute, std::move(temporary)));
}

AtomicDirectory::~AtomicDirectory() {
  // Best effort: what can't be removed now is a leftover for RemoveTemporaries.
  if (!published_) RemoveAll(path()).IgnoreError();
}

absl::Status AtomicDirectory::Publish() {
  if (published_) {
    return absl::FailedPreconditionError(fmt::format("{} is already published", name_));
  }
  MW_RETURN_IF_ERROR(SyncTree(path()));
  if (!FileExists(name_)) {
    if (rename(path().c_str(), name_.c_str()) != 0) {
      return ErrnoStatus(errno, "publish the folder", name_);
    }
    published_ = true;
    return Sync(ParentOf(name_));
  }
  if (renameat2(AT_FDCWD, path().c_str(), AT_FDCWD, name_.c_str(), RENAME_EXCHANGE) != 0) {
    // EINVAL: the file system cannot exchange; ENOSYS: the kernel cannot.
    if (errno != EINVAL && errno != ENOSYS) {
      return ErrnoStatus(errno, "exchange the old folder for the new one at", name_);
    }
    MW_RETURN_IF_ERROR(internal::ReplaceInTwoSteps(
        path(), name_, fmt::format("{}{}{}", name_, kReplacedMark, getpid())));
    published_ = true;
    return absl::OkStatus();
  }
  published_ = true;
  MW_RETURN_IF_ERROR(Sync(ParentOf(name_)));
  // The temporary name holds the old folder now. Publishing has succeeded either way.
  RemoveAll(path()).IgnoreError();
  return absl::OkStatus();
}

absl::Status internal::ReplaceInTwoSteps(const std::string& temporary, const std::string& name,
                                         const std::string& aside) {
  MW_RETURN_IF_ERROR(RemoveAll(aside));
  if (rename(name.c_str(), aside.c_str()) != 0) {
    return ErrnoStatus(errno, "move the old folder aside from", name);
  }
  if (rename(temporary.c_str(), name.c_str()) != 0) {
    const int error = errno;
    // Fails only if the first rename's folder is gone too; RemoveTemporaries tries again.
    (void)rename(aside.c_str(), name.c_str());
    return ErrnoStatus(error, "publish the folder", name);
  }
  MW_RETURN_IF_ERROR(Sync(ParentOf(name)));
  RemoveAll(aside).IgnoreError();
  return absl::OkStatus();
}

bool IsTemporaryName(const std::string& name) { return PidAfter(name, kTemporaryMark) >= 0; }

absl::StatusOr<std::vector<std::string>> RemoveTemporaries(const std::string& dir) {
  std::vector<std::string> found;
  std::vector<std::pair<std::string, std::string>> replaced;  // aside name, final name
  std::error_code error;
  std::filesystem::directory_iterator it(dir, error), end;
  for (; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    std::string stem;
    if (const long pid = PidAfter(name, kTemporaryMark); pid >= 0) {
      const bool own = pid == getpid();
      if (own ? TemporaryPath::IsClaimed(it->path().string()) : IsAlive(pid)) continue;
      found.push_back(std::move(name));
    } else if (const long aside_pid = PidAfter(name, kReplacedMark, &stem); aside_pid >= 0) {
      if (aside_pid != getpid() && IsAlive(aside_pid)) continue;
      if (FileExists(dir + "/" + stem)) {
        found.push_back(std::move(name));
      } else {
        replaced.emplace_back(std::move(name), std::move(stem));
      }
    }
  }
  if (error) return ErrnoStatus(error.value(), "list", dir);
  for (const auto& [aside, name] : replaced) {
    if (rename((dir + "/" + aside).c_str(), (dir + "/" + name).c_str()) != 0) {
      return ErrnoStatus(errno, "put back", dir + "/" + name);
    }
  }
  if (!replaced.empty()) MW_RETURN_IF_ERROR(Sync(dir));
  std::sort(found.begin(), found.end());
  for (const std::string& name : found) MW_RETURN_IF_ERROR(RemoveAll(dir + "/" + name));
  return found;
}

}  // namespace mw::io
