// ExecutableCache: compiled programs kept on disk between runs.
#ifndef MESHWRIGHT_RUNTIME_EXECUTABLE_CACHE_H_
#define MESHWRIGHT_RUNTIME_EXECUTABLE_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/runtime/client.h"

namespace mw::runtime {

struct ExecutableCacheOptions {
  // Empty: $MW_CACHE_DIR, else $XDG_CACHE_HOME/meshwright, else ~/.cache/meshwright.
  std::string folder;
  // Oldest entries (by last use) go when the folder exceeds this.
  int64_t max_bytes = int64_t{4} << 30;
  // Versions of the custom-call kernels that programs call; part of the key.
  std::string kernel_versions;
  // Told in a sentence of entries that are damaged or that the plugin does not load; by any thread.
  std::function<void(std::string_view)> note = {};
};

// What one Compile did.
struct CacheResult {
  bool hit = false;
  std::string key;   // 32 hex digits
  std::string note;  // why a hit was impossible or an entry not stored; else ""
};

struct ExecutableCacheStats {
  int64_t hits = 0;
  int64_t misses = 0;          // compiled because there was no entry
  int64_t corrupted = 0;       // entries that failed their checksum; recompiled
  int64_t load_failures = 0;   // sound entries the plugin would not load; recompiled
  int64_t store_failures = 0;  // compiled programs that could not be written
  int64_t bypassed = 0;        // compilations whose options write files (xla_dump_…)
  int64_t evicted = 0;
  std::string last_note;
};

// An entry's key is a 128-bit hash of: the program's text, the compile options,
// the plugin's build and platform version, the client's device count, this
// machine's CPU features, the kernel versions and the entry format. An entry
// carries a checksum and is written beside and renamed, so that several
// processes may share a folder. Whatever is wrong with an entry, the program is
// compiled anew, the stats say why, and so does `note`. Thread-safe.
class ExecutableCache {
 public:
  // Creates the folder. Errors: the file system's, with the folder's name.
  static absl::StatusOr<std::unique_ptr<ExecutableCache>> Open(ExecutableCacheOptions options = {});

  // Client::Compile through the cache. Errors: those of Client::Compile; trouble
  // with the cache itself is never an error.
  absl::StatusOr<LoadedExecutable> Compile(const Client& client, std::string_view stablehlo_text,
                                           const CompileOptions& options = {},
                                           CacheResult* result = nullptr);

  // $MW_CACHE_DIR, $XDG_CACHE_HOME/meshwright, ~/.cache/meshwright or, without a home, a folder
  // of temporary files.
  static std::string DefaultFolder();

  const std::string& folder() const { return options_.folder; }
  // The file that holds the entry of `key`.
  std::string EntryPath(std::string_view key) const;
  ExecutableCacheStats stats() const;

 private:
  explicit ExecutableCache(ExecutableCacheOptions options) : options_(std::move(options)) {}
  absl::StatusOr<std::string> Key(const Client& client, std::string_view text,
                                  const CompileOptions& options) const;
  absl::Status Store(const std::string& key, std::string_view payload);
  void EvictBeyondLimit(const std::string& keep_path);

  ExecutableCacheOptions options_;
  mutable std::mutex mutex_;
  ExecutableCacheStats stats_;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_EXECUTABLE_CACHE_H_
