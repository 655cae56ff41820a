#include "meshwright/runtime/executable_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "meshwright/base/status_macros.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace mw::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "MWEXEC01";
// Part of every key and header: raise it when either changes.
constexpr uint32_t kFormatVersion = 1;
constexpr std::string_view kSuffix = ".mwexec";
constexpr auto kAbandonedAfter = std::chrono::hours(1);

struct Header {
  char magic[8];
  uint32_t format_version;
  uint32_t reserved;
  uint64_t payload_bytes;
  uint64_t checksum_low;
  uint64_t checksum_high;
};
static_assert(sizeof(Header) == 40);

std::string View(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace

std::string ExecutableCache::DefaultFolder() {
  auto env = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string folder = env("MW_CACHE_DIR"); !folder.empty()) return folder;
  if (const std::string folder = env("XDG_CACHE_HOME"); !folder.empty()) {
    return folder + "/meshwright";
  }
  if (const std::string home = env("HOME"); !home.empty()) return home + "/.cache/meshwright";
  return (fs::temp_directory_path() / "meshwright-cache").string();
}

namespace {

// The instruction-set flags of this machine, as the kernel lists them.
const std::string& CpuFeatures() {
  static const auto* const kFeatures = [] {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line)) {
      if (line.starts_with("flags") || line.starts_with("Features")) return new std::string(line);
    }
    return new std::string("unknown");
  }();
  return *kFeatures;
}

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const std::streamoff size = file.tellg();
  if (size < 0) return std::nullopt;
  std::string bytes(static_cast<size_t>(size), '\0');
  file.seekg(0);
  file.read(bytes.data(), size);
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

// The payload of an entry, or why it is no sound entry.
absl::StatusOr<std::string_view> Payload(const std::string& entry) {
  Header header;
  if (entry.size() < sizeof(header)) return absl::DataLossError("it is shorter than its header");
  std::memcpy(&header, entry.data(), sizeof(header));
  if (std::string_view(header.magic, sizeof(header.magic)) != kMagic ||
      header.format_version != kFormatVersion) {
    return absl::DataLossError("it has a foreign header");
  }
  const std::string_view payload = std::string_view(entry).substr(sizeof(header));
  if (payload.size() != header.payload_bytes) return absl::DataLossError("its size is wrong");
  const XXH128_hash_t hash = XXH3_128bits(payload.data(), payload.size());
  if (hash.low64 != header.checksum_low || hash.high64 != header.checksum_high) {
    return absl::DataLossError("its checksum is wrong");
  }
  return payload;
}

absl::Status FileError(std::string_view what, const std::string& path) {
  return absl::InternalError(fmt::format("{} '{}': {}", what, path, std::strerror(errno)));
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError("write of", path);
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

// Length-prefixed, so that no two lists of fields give the same bytes.
class KeyHasher {
 public:
  KeyHasher() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~KeyHasher() { XXH3_freeState(state_); }
  KeyHasher(const KeyHasher&) = delete;
  KeyHasher& operator=(const KeyHasher&) = delete;

  void Add(std::string_view field) {
    const uint64_t size = field.size();
    XXH3_128bits_update(state_, &size, sizeof(size));
    XXH3_128bits_update(state_, field.data(), field.size());
  }
  std::string Hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t* state_;
};

// Dumps are written by the compiler, so a cached program would write none.
bool WritesFiles(const CompileOptions& options) {
  for (const auto& [name, value] : options.env_option_overrides) {
    if (name.starts_with("xla_dump")) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExecutableCache>> ExecutableCache::Open(
    ExecutableCacheOptions options) {
  if (options.folder.empty()) options.folder = DefaultFolder();
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error || !fs::is_directory(options.folder, error)) {
    return absl::FailedPreconditionError(
        fmt::format("the compilation cache's folder '{}' cannot be created: {}; set MW_CACHE_DIR",
                    options.folder, error ? error.message() : "it is not a folder"));
  }
  return std::unique_ptr<ExecutableCache>(new ExecutableCache(std::move(options)));
}

std::string ExecutableCache::EntryPath(std::string_view key) const {
  return fmt::format("{}/{}{}", options_.folder, key, kSuffix);
}

ExecutableCacheStats ExecutableCache::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

absl::StatusOr<std::string> ExecutableCache::Key(const Client& client, std::string_view text,
                                                 const CompileOptions& options) const {
  MW_ASSIGN_OR_RETURN(const std::string option_bytes, options.Serialize());
  KeyHasher hasher;
  hasher.Add(fmt::format("format {}", kFormatVersion));
  hasher.Add(text);
  hasher.Add(option_bytes);
  hasher.Add(client.plugin().identity());
  hasher.Add(client.platform_name());
  hasher.Add(client.platform_version());
  hasher.Add(fmt::format("{} x {}", client.devices().size(),
                         client.devices().empty() ? "" : client.devices()[0].kind()));
  hasher.Add(CpuFeatures());
  hasher.Add(options_.kernel_versions);
  return hasher.Hex();
}

absl::StatusOr<LoadedExecutable> ExecutableCache::Compile(const Client& client,
                                                          std::string_view stablehlo_text,
                                                          const CompileOptions& options,
                                                          CacheResult* result) {
  CacheResult ignored;
  CacheResult& out = result == nullptr ? ignored : *result;
  out = CacheResult();
  auto count = [&](int64_t ExecutableCacheStats::*counter, const std::string& note) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++(stats_.*counter);
    if (note.empty()) return;
    stats_.last_note = note;
    out.note = note;
  };
  const auto count_anew = [&](int64_t ExecutableCacheStats::*counter, const std::string& why) {
    count(counter, "compiled anew: " + why);
    if (options_.note) options_.note("a program is compiled anew: " + why);
  };
  if (WritesFiles(options)) {
    count(&ExecutableCacheStats::bypassed, "not cached: the options ask the compiler for dumps");
    return client.Compile(stablehlo_text, options);
  }
  MW_ASSIGN_OR_RETURN(out.key, Key(client, stablehlo_text, options));
  const std::string path = EntryPath(out.key);

  if (const std::optional<std::string> entry = ReadFile(path)) {
    const absl::StatusOr<std::string_view> payload = Payload(*entry);
    if (!payload.ok()) {
      count_anew(&ExecutableCacheStats::corrupted,
                 fmt::format("entry '{}' is damaged, {}", path, View(payload.status())));
    } else {
      absl::StatusOr<LoadedExecutable> loaded = client.Deserialize(*payload, options);
      if (loaded.ok()) {
        count(&ExecutableCacheStats::hits, "");
        out.hit = true;
        std::error_code error;
        fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // for eviction
        return loaded;
      }
      count_anew(
          &ExecutableCacheStats::load_failures,
          fmt::format("the plugin does not load entry '{}': {}", path, View(loaded.status())));
    }
  } else {
    count(&ExecutableCacheStats::misses, "");
  }

  MW_ASSIGN_OR_RETURN(LoadedExecutable compiled, client.Compile(stablehlo_text, options));
  const absl::StatusOr<std::string> bytes = compiled.executable().Serialize();
  const absl::Status stored = bytes.ok() ? Store(out.key, *bytes) : bytes.status();
  if (!stored.ok()) {
    count(&ExecutableCacheStats::store_failures, fmt::format("not cached: {}", View(stored)));
  }
  return compiled;
}

absl::Status ExecutableCache::Store(const std::string& key, std::string_view payload) {
  static std::atomic<uint64_t> counter{0};
  const std::string path = EntryPath(key);
  const std::string temporary = fmt::format("{}.{}.{}.tmp", path, getpid(), ++counter);

  Header header{};
  std::memcpy(header.magic, kMagic.data(), sizeof(header.magic));
  header.format_version = kFormatVersion;
  header.payload_bytes = payload.size();
  const XXH128_hash_t hash = XXH3_128bits(payload.data(), payload.size());
  header.checksum_low = hash.low64;
  header.checksum_high = hash.high64;

  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("creation of", temporary);
  absl::Status status =
      WriteAll(fd, {reinterpret_cast<const char*>(&header), sizeof(header)}, temporary);
  if (status.ok()) status = WriteAll(fd, payload, temporary);
  if (status.ok() && fsync(fd) != 0) status = FileError("fsync of", temporary);
  if (close(fd) != 0 && status.ok()) status = FileError("close of", temporary);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = FileError("rename to", path);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  SyncFolder(options_.folder);
  EvictBeyondLimit(path);
  return absl::OkStatus();
}

void ExecutableCache::EvictBeyondLimit(const std::string& keep_path) {
  struct Entry {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  const auto now = fs::file_time_type::clock::now();
  std::error_code error;
  for (fs::directory_iterator it(options_.folder, error), end; !error && it != end;
       it.increment(error)) {
    const fs::path& path = it->path();
    // Another process may remove a file between listing and looking.
    std::error_code gone;
    const auto used = fs::last_write_time(path, gone);
    const auto bytes = static_cast<int64_t>(gone ? 0 : fs::file_size(path, gone));
    if (gone) continue;
    const std::string name = path.filename().string();
    if (name.ends_with(".tmp") && name.find(kSuffix) != std::string::npos) {
      if (now - used > kAbandonedAfter) fs::remove(path, gone);
      continue;
    }
    if (path.extension() != kSuffix) continue;
    total += bytes;
    if (path != fs::path(keep_path)) entries.push_back({used, bytes, path});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= options_.max_bytes) break;
    std::error_code gone;
    if (!fs::remove(entry.path, gone) || gone) continue;
    total -= entry.bytes;
    std::lock_guard<std::mutex> lock(mutex_);
    ++stats_.evicted;
  }
}

}  // namespace mw::runtime
