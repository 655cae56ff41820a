// Names of files and folders that are being written: "<final name>.tmp-<pid>".
#ifndef MESHWRIGHT_IO_TEMPORARY_PATH_H_
#define MESHWRIGHT_IO_TEMPORARY_PATH_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace mw::io {

// Absolute, normalized, without a trailing slash. Links are not resolved.
std::string AbsolutePath(const std::string& path);

// The folder that holds `path`; "." for a plain name.
std::string ParentOf(const std::string& path);

// This process's claim on the temporary name of one final path. The pid alone does not tell
// a leftover of an earlier process with the same number (always 1 in a container) from live work.
class TemporaryPath {
 public:
  // Errors: FailedPrecondition while another claim on the same path lives.
  static absl::StatusOr<std::unique_ptr<TemporaryPath>> Claim(const std::string& final_path);
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;
  ~TemporaryPath();

  const std::string& path() const { return path_; }

  // True when this process holds a claim whose temporary path is `path`.
  static bool IsClaimed(const std::string& path);

 private:
  explicit TemporaryPath(std::string path) : path_(std::move(path)) {}
  std::string path_;  // absolute
};

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_TEMPORARY_PATH_H_
