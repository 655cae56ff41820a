// XXH3-128 checksums of files, and manifests that list them.
#ifndef MESHWRIGHT_IO_CHECKSUM_H_
#define MESHWRIGHT_IO_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace mw::io {

// What a manifest knows of one file.
struct FileDigest {
  std::string name;  // as given; in a manifest relative to its folder
  uint64_t size_bytes = 0;
  std::string xxh3_128;  // 32 lower-case hex digits, as `xxhsum -H2` prints

  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

// A running XXH3-128.
// Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  // Of all bytes so far; more may follow.
  std::string HexDigest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// XXH3-128 of `bytes` as 32 hex digits.
std::string ChecksumBytes(std::span<const std::byte> bytes);

// Reads the whole file. `name` of the result is `path`.
absl::StatusOr<FileDigest> ChecksumFile(const std::string& path);

// The files of a folder with their sizes and checksums; on disk a JSON object
// {"format": "meshwright-manifest-1", "files": [{"name", "size_bytes", "xxh3_128"}]}.
class Manifest {
 public:
  static constexpr const char* kFileName = "manifest.json";

  // Every regular file below `dir` (but `kFileName` itself), sorted by name.
  static absl::StatusOr<Manifest> FromDirectory(const std::string& dir);
  static absl::StatusOr<Manifest> ReadFrom(const std::string& dir);

  // Errors: InvalidArgument for a name that is absolute, leaves the folder or is there already.
  absl::Status Add(FileDigest digest);
  absl::Status WriteTo(const std::string& dir) const;

  // Compares every listed file but `except` with the disk; files that are not listed don't
  // matter.
  // Errors: DataLoss naming the first missing, resized or damaged file and how it differs.
  absl::Status Verify(const std::string& dir,
                      std::initializer_list<std::string_view> except = {}) const;

  const std::vector<FileDigest>& files() const { return files_; }

 private:
  std::vector<FileDigest> files_;
};

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_CHECKSUM_H_
