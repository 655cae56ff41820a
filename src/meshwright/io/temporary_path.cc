#include "meshwright/io/temporary_path.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

namespace mw::io {
namespace {

std::mutex claims_mutex;

std::set<std::string>& Claims() {
  static std::set<std::string> claims;
  return claims;
}

}  // namespace

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  std::string text = (error ? std::filesystem::path(path) : absolute).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::string ParentOf(const std::string& path) {
  std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::StatusOr<std::unique_ptr<TemporaryPath>> TemporaryPath::Claim(const std::string& final_path) {
  std::string path = fmt::format("{}.tmp-{}", AbsolutePath(final_path), getpid());
  std::lock_guard lock(claims_mutex);
  if (!Claims().insert(path).second) {
    return absl::FailedPreconditionError(
        fmt::format("{} is already being written by this process", final_path));
  }
  return std::unique_ptr<TemporaryPath>(new TemporaryPath(std::move(path)));
}

TemporaryPath::~TemporaryPath() {
  std::lock_guard lock(claims_mutex);
  Claims().erase(path_);
}

bool TemporaryPath::IsClaimed(const std::string& path) {
  std::lock_guard lock(claims_mutex);
  return Claims().contains(AbsolutePath(path));
}

}  // namespace mw::io
