#include "meshwright/io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/checked_size.h"
#include "meshwright/io/json_util.h"
#include "meshwright/io/tensor_sequence.h"

namespace mw::io {
namespace {

// The reference implementation refuses longer headers.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";

struct DTypeRow {
  DType dtype;
  std::string_view name;
};

// In the reference implementation's order, which its layout of files follows (last first).
// Source: safetensors/src/tensor.rs, enum Dtype.
constexpr DTypeRow kDTypes[] = {
    {DType::kPred, "BOOL"}, {DType::kU8, "U8"},   {DType::kS8, "I8"},   {DType::kF16, "F16"},
    {DType::kBF16, "BF16"}, {DType::kS32, "I32"}, {DType::kU32, "U32"}, {DType::kF32, "F32"},
    {DType::kF64, "F64"},   {DType::kS64, "I64"}, {DType::kU64, "U64"},
};

int ReferenceRank(DType dtype) {
  int rank = 0;
  while (kDTypes[rank].dtype != dtype) ++rank;
  return rank;
}

std::string ReadableDTypes() {
  std::string text;
  for (const DTypeRow& row : kDTypes) text += (text.empty() ? "" : ", ") + std::string(row.name);
  return text;
}

// A non-negative JSON integer up to kMaxSize.
std::optional<uint64_t> AsSize(const nlohmann::json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t size = value.get<uint64_t>();
  return size <= kMaxSize ? std::optional(size) : std::nullopt;
}

// One entry of the header; `end` and `begin` count from the start of the data.
struct HeaderEntry {
  std::string_view dtype;
  Dims dims;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// The reason why `json` is not an entry, or "".
std::string ParseEntry(const nlohmann::json& json, HeaderEntry& entry) {
  if (!json.is_object()) return "its entry is not an object";
  for (const auto& [key, value] : json.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return fmt::format("unknown field \"{}\"", Excerpt(key));
    }
  }
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) return "\"dtype\" is not a string";
  entry.dtype = dtype->get_ref<const std::string&>();
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) return "\"shape\" is not an array";
  for (const nlohmann::json& dim : *shape) {
    const auto size = AsSize(dim);
    if (!size) return fmt::format("\"shape\" holds {}, which is not a size", dim.dump());
    entry.dims.push_back(static_cast<int64_t>(*size));
  }
  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2) {
    return "\"data_offsets\" is not an array of two numbers";
  }
  const auto begin = AsSize((*offsets)[0]);
  const auto end = AsSize((*offsets)[1]);
  if (!begin || !end || *end < *begin) {
    return fmt::format("data_offsets {} are not a range", offsets->dump());
  }
  entry.begin = *begin;
  entry.end = *end;
  return "";
}

// `text` as a JSON string; nullopt when it is not UTF-8.
std::optional<std::string> JsonString(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<std::string> SafetensorsHeader(const std::string& what,
                                              const std::vector<TensorSpec>& specs,
                                              const SafetensorsMetadata& metadata) {
  const auto invalid = [&](std::string_view reason) {
    return absl::InvalidArgumentError(fmt::format("cannot write {}: {}", what, reason));
  };
  std::string header = "{";
  if (!metadata.empty()) {
    header += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : metadata) {
      const auto json_key = JsonString(key);
      const auto json_value = JsonString(value);
      if (!json_key || !json_value) return invalid("the metadata is not UTF-8");
      if (header.back() != '{') header += ',';
      header += *json_key + ":" + *json_value;
    }
    header += "}";
  }
  std::set<std::string_view> seen;
  uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    const auto name = JsonString(spec.name);
    if (!name) return invalid("a tensor name is not UTF-8");
    if (spec.name == kMetadataKey) return invalid("a tensor may not be named __metadata__");
    if (!seen.insert(spec.name).second) {
      return invalid(fmt::format("there are two tensors \"{}\"", spec.name));
    }
    const auto bytes = CheckedProduct(spec.dims, ByteSize(spec.dtype));
    const auto end = bytes ? CheckedAdd(offset, *bytes) : std::nullopt;
    if (!end) {
      return invalid(fmt::format("tensor \"{}\" {} does not fit into a file", spec.name,
                                 DimsToString(spec.dims)));
    }
    if (header.size() > 1) header += ',';
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", *name,
                          SafetensorsDTypeName(spec.dtype), DimsToString(spec.dims), offset, *end);
    offset = *end;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  if (header.size() > kMaxHeaderBytes) {
    return invalid(
        fmt::format("the header has {} bytes; readers accept {}", header.size(), kMaxHeaderBytes));
  }
  std::string length(8, '\0');
  const uint64_t size = header.size();
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(size >> (8 * i));
  return length + header;
}

std::string_view SafetensorsDTypeName(DType dtype) { return kDTypes[ReferenceRank(dtype)].name; }

std::optional<DType> ParseSafetensorsDType(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile());
  MW_ASSIGN_OR_RETURN(file->file_, MappedFile::Open(path));
  MW_RETURN_IF_ERROR(file->ParseHeader());
  return file;
}

absl::Status SafetensorsFile::ParseHeader() {
  const std::span<const std::byte> bytes = file_->bytes();
  const auto damaged = [&](std::string_view reason) {
    return absl::DataLossError(fmt::format("{}: {}", path(), reason));
  };
  if (bytes.size() < 8) {
    return damaged(
        fmt::format("has {} bytes; a safetensors file starts with 8 bytes of header "
                    "length",
                    bytes.size()));
  }
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i)
    header_bytes = header_bytes << 8 | std::to_integer<uint8_t>(bytes[i]);
  if (header_bytes > kMaxHeaderBytes) {
    return damaged(
        fmt::format("header length {} exceeds the format's limit of {}; is this a "
                    "safetensors file?",
                    header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > bytes.size() - 8) {
    return damaged(fmt::format("header length {} exceeds the {} bytes that follow; truncated?",
                               header_bytes, bytes.size() - 8));
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  MW_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(header, path()));

  const uint64_t data_begin = 8 + header_bytes;
  const uint64_t available = bytes.size() - data_begin;
  std::vector<std::pair<std::pair<uint64_t, uint64_t>, std::string_view>> ranges;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      if (!value.is_object()) return damaged("__metadata__ is not an object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) {
          return damaged(fmt::format("__metadata__: \"{}\" is not a string", Excerpt(key)));
        }
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    HeaderEntry entry;
    if (const std::string reason = ParseEntry(value, entry); !reason.empty()) {
      return damaged(fmt::format("tensor \"{}\": {}", Excerpt(name), reason));
    }
    const std::optional<DType> dtype = ParseSafetensorsDType(entry.dtype);
    if (!dtype) {
      return absl::UnimplementedError(
          fmt::format("{}: tensor \"{}\": dtype {} is not supported; {} are", path(), Excerpt(name),
                      Excerpt(entry.dtype), ReadableDTypes()));
    }
    const auto want = CheckedProduct(entry.dims, ByteSize(*dtype));
    if (!want) {
      return damaged(fmt::format("tensor \"{}\": shape {} overflows", Excerpt(name),
                                 DimsToString(entry.dims)));
    }
    if (*want != entry.end - entry.begin) {
      return damaged(fmt::format("tensor \"{}\": {}{} takes {} bytes, data_offsets [{},{}] hold {}",
                                 Excerpt(name), entry.dtype, DimsToString(entry.dims), *want,
                                 entry.begin, entry.end, entry.end - entry.begin));
    }
    if (entry.end > available) {
      return damaged(
          fmt::format("tensor \"{}\": ends at byte {} of the data, the file has {}; "
                      "truncated?",
                      Excerpt(name), entry.end, available));
    }
    // `json` outlives `ranges`, and its keys stay where they are.
    ranges.push_back({{entry.begin, entry.end}, name});
    names_.push_back(name);
    entries_.emplace(name, Entry{*dtype, std::move(entry.dims), data_begin + entry.begin});
  }
  std::sort(names_.begin(), names_.end());

  std::sort(ranges.begin(), ranges.end());
  uint64_t expected = 0;
  for (const auto& [range, name] : ranges) {
    if (range.first != expected) {
      return damaged(fmt::format("tensor \"{}\": begins at byte {} of the data, {} {}",
                                 Excerpt(name), range.first, expected,
                                 range.first < expected ? "overlapping the tensor before it, which "
                                                          "ends there"
                                                        : "is where the tensor before it ends"));
    }
    expected = range.second;
  }
  data_bytes_ = expected;
  if (expected != available) {
    return damaged(fmt::format("the tensors end at byte {} of the data, the file has {}", expected,
                               available));
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorInfo> SafetensorsFile::info(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoSuchTensor(name);
  return TensorInfo{it->second.dtype, it->second.dims,
                    std::string(SafetensorsDTypeName(it->second.dtype))};
}

absl::StatusOr<HostTensor> SafetensorsFile::Read(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoSuchTensor(name);
  const Entry& entry = it->second;
  const std::byte* bytes = file_->bytes().data() + entry.begin;
  if (reinterpret_cast<uintptr_t>(bytes) % ByteSize(entry.dtype) == 0) {
    return HostTensor::View(entry.dtype, entry.dims, bytes, file_);
  }
  HostTensor copy = HostTensor::Empty(entry.dtype, entry.dims);
  std::memcpy(copy.mutable_bytes(), bytes, copy.num_bytes());
  return copy;
}

void SortInReferenceOrder(std::vector<TensorSpec>& specs) {
  std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const int rank_a = ReferenceRank(a.dtype), rank_b = ReferenceRank(b.dtype);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<TensorSpec> specs, const SafetensorsMetadata& metadata) {
  MW_ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(path, specs, metadata));
  MW_ASSIGN_OR_RETURN(std::unique_ptr<FileWriter> file, FileWriter::Create(path));
  MW_RETURN_IF_ERROR(file->Append(header));
  return std::unique_ptr<SafetensorsWriter>(
      new SafetensorsWriter(std::move(specs), std::move(file)));
}

absl::Status SafetensorsWriter::Write(std::string_view name, const HostTensor& tensor) {
  MW_RETURN_IF_ERROR(CheckNextTensor(file_->path(), specs_, next_, name, tensor));
  MW_RETURN_IF_ERROR(file_->Append(std::span(tensor.bytes(), tensor.num_bytes())));
  ++next_;
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> SafetensorsWriter::Finish() {
  MW_RETURN_IF_ERROR(CheckAllWritten(file_->path(), specs_, next_));
  return file_->Finish();
}

absl::StatusOr<FileDigest> WriteSafetensors(const std::string& path,
                                            std::map<std::string, HostTensor> tensors,
                                            const SafetensorsMetadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.dtype(), tensor.dims()});
  SortInReferenceOrder(specs);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                      SafetensorsWriter::Create(path, specs, metadata));
  for (const TensorSpec& spec : specs) {
    MW_RETURN_IF_ERROR(writer->Write(spec.name, tensors.extract(spec.name).mapped()));
  }
  return writer->Finish();
}

}  // namespace mw::io
