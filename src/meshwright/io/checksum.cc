#include "meshwright/io/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "meshwright/base/check.h"
#include "meshwright/base/json_error.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/json_util.h"
#include "meshwright/io/mapped_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace mw::io {
namespace {

constexpr const char* kFormat = "meshwright-manifest-1";

std::string Hex(const XXH128_hash_t& hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

bool IsPlainRelative(const std::string& name) {
  const std::filesystem::path path(name);
  if (name.empty() || path.is_absolute() || name.find('\0') != std::string::npos) return false;
  return std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
}

bool IsDigest(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string JoinPath(const std::string& dir, const std::string& name) { return dir + "/" + name; }

}  // namespace

struct Checksum::State {
  XXH3_state_t* xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  state_->xxh = XXH3_createState();
  MW_CHECK_MSG(state_->xxh != nullptr, "out of host memory");
  XXH3_128bits_reset(state_->xxh);
}

Checksum::~Checksum() {
  if (state_ != nullptr) XXH3_freeState(state_->xxh);
}

Checksum::Checksum(Checksum&&) noexcept = default;

Checksum& Checksum::operator=(Checksum&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void Checksum::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string Checksum::HexDigest() const { return Hex(XXH3_128bits_digest(state_->xxh)); }

std::string ChecksumBytes(std::span<const std::byte> bytes) {
  return Hex(XXH3_128bits(bytes.data(), bytes.size()));
}

absl::StatusOr<FileDigest> ChecksumFile(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  return FileDigest{path, file->size(), ChecksumBytes(file->bytes())};
}

absl::StatusOr<Manifest> Manifest::FromDirectory(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(dir, error), end;
  for (; !error && it != end; it.increment(error)) {
    std::error_code kind_error;
    if (!it->is_regular_file(kind_error)) continue;
    std::string name = it->path().lexically_relative(dir).string();
    if (name != kFileName) names.push_back(std::move(name));
  }
  if (error) return ErrnoStatus(error.value(), "list", dir);
  std::sort(names.begin(), names.end());
  Manifest manifest;
  for (const std::string& name : names) {
    MW_ASSIGN_OR_RETURN(FileDigest digest, ChecksumFile(JoinPath(dir, name)));
    digest.name = name;
    MW_RETURN_IF_ERROR(manifest.Add(std::move(digest)));
  }
  return manifest;
}

absl::Status Manifest::Add(FileDigest digest) {
  if (!IsPlainRelative(digest.name)) {
    return absl::InvalidArgumentError(
        fmt::format("manifest: \"{}\" is not a name relative to the folder", digest.name));
  }
  for (const FileDigest& file : files_) {
    if (file.name == digest.name) {
      return absl::InvalidArgumentError(
          fmt::format("manifest: \"{}\" is listed twice", digest.name));
    }
  }
  files_.push_back(std::move(digest));
  return absl::OkStatus();
}

absl::Status Manifest::WriteTo(const std::string& dir) const {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const FileDigest& file : files_) {
    files.push_back(
        {{"name", file.name}, {"size_bytes", file.size_bytes}, {"xxh3_128", file.xxh3_128}});
  }
  const nlohmann::ordered_json manifest = {{"format", kFormat}, {"files", std::move(files)}};
  const std::string path = JoinPath(dir, kFileName);
  // Strict dumping throws on names that are not UTF-8, which JSON cannot hold.
  try {
    return WriteFile(path, manifest.dump(2) + "\n");
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(fmt::format("cannot write {}: a file name is not UTF-8 ({})",
                                                  path, JsonErrorText(e.what())));
  }
}

absl::StatusOr<Manifest> Manifest::ReadFrom(const std::string& dir) {
  const std::string path = JoinPath(dir, kFileName);
  MW_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path));
  MW_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(text, path));
  const auto damaged = [&](std::string_view reason) {
    return absl::DataLossError(fmt::format("{}: {}", path, reason));
  };
  const auto format = json.find("format");
  if (format == json.end() || *format != kFormat) {
    return damaged(fmt::format("\"format\" is not \"{}\"", kFormat));
  }
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array()) return damaged("\"files\" is not an array");
  Manifest manifest;
  for (const nlohmann::json& entry : *files) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("size_bytes") || !entry["size_bytes"].is_number_unsigned() ||
        !entry.contains("xxh3_128") || !entry["xxh3_128"].is_string()) {
      return damaged("an entry of \"files\" lacks name, size_bytes or xxh3_128");
    }
    FileDigest digest{entry["name"], entry["size_bytes"], entry["xxh3_128"]};
    if (!IsDigest(digest.xxh3_128)) {
      return damaged(fmt::format("the xxh3_128 of \"{}\" is not 32 hex digits", digest.name));
    }
    if (absl::Status added = manifest.Add(std::move(digest)); !added.ok()) {
      return damaged(std::string(added.message()));
    }
  }
  return manifest;
}

absl::Status Manifest::Verify(const std::string& dir,
                              std::initializer_list<std::string_view> except) const {
  for (const FileDigest& want : files_) {
    if (std::ranges::find(except, want.name) != except.end()) continue;
    const std::string path = JoinPath(dir, want.name);
    absl::StatusOr<FileDigest> have = ChecksumFile(path);
    if (absl::IsNotFound(have.status())) {
      return absl::DataLossError(fmt::format(
          "{} is missing; the manifest of {} lists it with {} bytes", path, dir, want.size_bytes));
    }
    MW_RETURN_IF_ERROR(have.status());
    if (have->size_bytes != want.size_bytes) {
      return absl::DataLossError(fmt::format("{} has {} bytes; the manifest says {}", path,
                                             have->size_bytes, want.size_bytes));
    }
    if (have->xxh3_128 != want.xxh3_128) {
      return absl::DataLossError(
          fmt::format("{} is damaged: its xxh3_128 is {}; the manifest says {}", path,
                      have->xxh3_128, want.xxh3_128));
    }
  }
  return absl::OkStatus();
}

}  // namespace mw::io
