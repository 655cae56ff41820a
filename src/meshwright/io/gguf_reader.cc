#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/checked_size.h"
#include "meshwright/io/gguf.h"

namespace mw::io {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint32_t kMaxDims = 4;  // GGML_MAX_DIMS
// The format sets no limit; nobody nests deeper than an array in an array.
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kMaxReserve = 1 << 16;

// Bytes of one stored value; the least possible for strings and arrays.
uint64_t MinBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
    case GgufType::kString:
      return 8;
    case GgufType::kArray:
      return 12;
  }
  return 0;  // not a type of the format
}

// Reads little-endian values front to back; each error says what was being read and where.
class Cursor {
 public:
  Cursor(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  absl::Status Damaged(std::string_view what, std::string_view reason) const {
    return absl::DataLossError(
        fmt::format("{}: {} at byte {}: {}", path_, what, position_, reason));
  }

  template <typename T>
  absl::StatusOr<T> Scalar(std::string_view what) {
    if (remaining() < sizeof(T)) return Damaged(what, "the file ends here; truncated?");
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  absl::StatusOr<std::string> String(std::string_view what) {
    MW_ASSIGN_OR_RETURN(const uint64_t size, Scalar<uint64_t>(what));
    if (size > remaining()) {
      return Damaged(
          what, fmt::format("a string of {} bytes exceeds the {} that follow", size, remaining()));
    }
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + position_, size);
    position_ += size;
    return text;
  }

  absl::StatusOr<GgufValue> Value(std::string_view what) {
    MW_ASSIGN_OR_RETURN(const GgufType type, Type(what));
    return ValueOf(type, what, 0);
  }

 private:
  absl::StatusOr<GgufType> Type(std::string_view what) {
    MW_ASSIGN_OR_RETURN(const uint32_t number, Scalar<uint32_t>(what));
    const GgufType type = static_cast<GgufType>(number);
    if (MinBytes(type) == 0) return Damaged(what, fmt::format("unknown value type {}", number));
    return type;
  }

  // One scalar as `Wide`. REQUIRES: `type` is of Wide's kind.
  template <typename Wide>
  absl::StatusOr<Wide> Widened(GgufType type, std::string_view what) {
    switch (type) {
      case GgufType::kU8:
        return Scalar<uint8_t>(what);
      case GgufType::kI8:
        return Scalar<int8_t>(what);
      case GgufType::kU16:
        return Scalar<uint16_t>(what);
      case GgufType::kI16:
        return Scalar<int16_t>(what);
      case GgufType::kU32:
        return Scalar<uint32_t>(what);
      case GgufType::kI32:
        return Scalar<int32_t>(what);
      case GgufType::kF32:
        return Scalar<float>(what);
      case GgufType::kU64:
        return Scalar<uint64_t>(what);
      case GgufType::kI64:
        return Scalar<int64_t>(what);
      case GgufType::kF64:
        return Scalar<double>(what);
      default:
        return Damaged(what, "not a number");
    }
  }

  absl::StatusOr<bool> Bool(std::string_view what) {
    MW_ASSIGN_OR_RETURN(const uint8_t value, Scalar<uint8_t>(what));
    if (value > 1) return Damaged(what, fmt::format("a bool is {}, neither 0 nor 1", value));
    return value == 1;
  }

  template <typename Wide, typename ReadOne>
  absl::Status Fill(uint64_t count, std::vector<Wide>& out, ReadOne read_one) {
    // In memory an element may be larger than its least size in the file: a false count must not
    // reserve more than the file could fill.
    out.reserve(std::min<uint64_t>(count, kMaxReserve));
    for (uint64_t i = 0; i < count; ++i) {
      MW_ASSIGN_OR_RETURN(Wide value, read_one());
      out.push_back(std::move(value));
    }
    return absl::OkStatus();
  }

  template <typename Wide>
  absl::Status FillNumbers(GgufType type, uint64_t count, std::string_view what,
                           GgufValue::Data& data) {
    return Fill<Wide>(count, data.emplace<std::vector<Wide>>(),
                      [&] { return Widened<Wide>(type, what); });
  }

  absl::StatusOr<GgufValue> ValueOf(GgufType type, std::string_view what, int depth) {
    GgufValue value;
    value.type = type;
    switch (type) {
      case GgufType::kU8:
      case GgufType::kU16:
      case GgufType::kU32:
      case GgufType::kU64: {
        MW_ASSIGN_OR_RETURN(value.data, Widened<uint64_t>(type, what));
        return value;
      }
      case GgufType::kI8:
      case GgufType::kI16:
      case GgufType::kI32:
      case GgufType::kI64: {
        MW_ASSIGN_OR_RETURN(value.data, Widened<int64_t>(type, what));
        return value;
      }
      case GgufType::kF32:
      case GgufType::kF64: {
        MW_ASSIGN_OR_RETURN(value.data, Widened<double>(type, what));
        return value;
      }
      case GgufType::kBool: {
        MW_ASSIGN_OR_RETURN(value.data, Bool(what));
        return value;
      }
      case GgufType::kString: {
        MW_ASSIGN_OR_RETURN(value.data, String(what));
        return value;
      }
      case GgufType::kArray:
        break;
    }
    if (depth >= kMaxArrayDepth) {
      return Damaged(what, fmt::format("arrays nest deeper than {}", kMaxArrayDepth));
    }
    MW_ASSIGN_OR_RETURN(value.element_type, Type(what));
    MW_ASSIGN_OR_RETURN(const uint64_t count, Scalar<uint64_t>(what));
    if (count > remaining() / MinBytes(value.element_type)) {
      return Damaged(what, fmt::format("an array of {} {} exceeds the {} bytes that follow", count,
                                       GgufTypeName(value.element_type), remaining()));
    }
    MW_RETURN_IF_ERROR(Elements(value, count, what, depth));
    return value;
  }

  absl::Status Elements(GgufValue& value, uint64_t count, std::string_view what, int depth) {
    const GgufType type = value.element_type;
    switch (type) {
      case GgufType::kU8:
      case GgufType::kU16:
      case GgufType::kU32:
      case GgufType::kU64:
        return FillNumbers<uint64_t>(type, count, what, value.data);
      case GgufType::kI8:
      case GgufType::kI16:
      case GgufType::kI32:
      case GgufType::kI64:
        return FillNumbers<int64_t>(type, count, what, value.data);
      case GgufType::kF32:
      case GgufType::kF64:
        return FillNumbers<double>(type, count, what, value.data);
      case GgufType::kBool:
        return Fill<bool>(count, value.data.emplace<std::vector<bool>>(),
                          [&] { return Bool(what); });
      case GgufType::kString:
        return Fill<std::string>(count, value.data.emplace<std::vector<std::string>>(),
                                 [&] { return String(what); });
      case GgufType::kArray:
        return Fill<GgufValue>(count, value.data.emplace<std::vector<GgufValue>>(),
                               [&] { return ValueOf(GgufType::kArray, what, depth + 1); });
    }
    return Damaged(what, "unknown element type");
  }

  const std::string& path_;
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  std::shared_ptr<GgufFile> file(new GgufFile());
  MW_ASSIGN_OR_RETURN(file->file_, MappedFile::Open(path));
  MW_RETURN_IF_ERROR(file->Parse());
  return file;
}

absl::Status GgufFile::Parse() {
  Cursor cursor(path(), file_->bytes());
  const auto unsupported = [&](std::string_view reason) {
    return absl::UnimplementedError(fmt::format("{}: {}", path(), reason));
  };
  MW_ASSIGN_OR_RETURN(const uint32_t magic, cursor.Scalar<uint32_t>("magic"));
  if (magic != 0x46554747) return cursor.Damaged("magic", "not \"GGUF\"; not a GGUF file");
  MW_ASSIGN_OR_RETURN(version_, cursor.Scalar<uint32_t>("version"));
  if (version_ != 0 && (version_ & 0xffff) == 0) return unsupported("a big-endian GGUF file");
  if (version_ < 2 || version_ > 3) {
    return unsupported(fmt::format("GGUF version {}; versions 2 and 3 can be read", version_));
  }
  MW_ASSIGN_OR_RETURN(const uint64_t num_tensors, cursor.Scalar<uint64_t>("tensor count"));
  MW_ASSIGN_OR_RETURN(const uint64_t num_keys, cursor.Scalar<uint64_t>("metadata count"));

  metadata_ = GgufMetadata(path());
  for (uint64_t i = 0; i < num_keys; ++i) {
    MW_ASSIGN_OR_RETURN(const std::string key,
                        cursor.String(fmt::format("metadata key {} of {}", i + 1, num_keys)));
    const std::string what = fmt::format("metadata \"{}\"", Excerpt(key));
    if (metadata_.Contains(key)) return cursor.Damaged(what, "the key is there twice");
    MW_ASSIGN_OR_RETURN(GgufValue value, cursor.Value(what));
    metadata_.Set(key, std::move(value));
  }

  uint64_t alignment = kDefaultAlignment;
  if (const GgufValue* value = metadata_.Find("general.alignment")) {
    const auto* number = std::get_if<uint64_t>(&value->data);
    if (value->type != GgufType::kU32 || number == nullptr || !std::has_single_bit(*number)) {
      return cursor.Damaged("metadata \"general.alignment\"", "not a power of two of type u32");
    }
    alignment = *number;
  }

  for (uint64_t i = 0; i < num_tensors; ++i) {
    MW_ASSIGN_OR_RETURN(const std::string name,
                        cursor.String(fmt::format("name of tensor {} of {}", i + 1, num_tensors)));
    const std::string what = fmt::format("tensor \"{}\"", Excerpt(name));
    MW_ASSIGN_OR_RETURN(const uint32_t num_dims, cursor.Scalar<uint32_t>(what));
    if (num_dims > kMaxDims) {
      return cursor.Damaged(what, fmt::format("{} dims; at most {}", num_dims, kMaxDims));
    }
    Dims dims(num_dims);
    // The file lists the fastest-varying dim first.
    for (uint32_t d = num_dims; d-- > 0;) {
      MW_ASSIGN_OR_RETURN(const uint64_t size, cursor.Scalar<uint64_t>(what));
      if (size > kMaxSize) return cursor.Damaged(what, fmt::format("a dim of {}", size));
      dims[d] = static_cast<int64_t>(size);
    }
    MW_ASSIGN_OR_RETURN(const uint32_t type_id, cursor.Scalar<uint32_t>(what));
    MW_ASSIGN_OR_RETURN(const uint64_t offset, cursor.Scalar<uint64_t>(what));
    const GgmlType* type = FindGgmlType(type_id);
    if (type == nullptr) {
      return unsupported(fmt::format("{} is stored as {}, which cannot be read; {} can", what,
                                     GgmlTypeName(type_id), ReadableGgmlTypes()));
    }
    const int64_t row = dims.empty() ? 1 : dims.back();
    if (row % type->block_elements != 0) {
      return cursor.Damaged(what, fmt::format("rows of {} are not whole {} blocks of {}", row,
                                              type->name, type->block_elements));
    }
    // In memory a quantized tensor takes more bytes than in the file; both must be countable.
    const auto elements = CheckedProduct(dims, 1);
    if (!elements || !CheckedProduct(dims, 8) ||
        !CheckedMultiply(*elements / static_cast<uint64_t>(type->block_elements),
                         static_cast<uint64_t>(type->block_bytes))) {
      return cursor.Damaged(what, fmt::format("dims {} overflow", DimsToString(dims)));
    }
    const uint64_t bytes = *elements / static_cast<uint64_t>(type->block_elements) *
                           static_cast<uint64_t>(type->block_bytes);
    if (offset % alignment != 0) {
      return cursor.Damaged(
          what, fmt::format("offset {} is not a multiple of the alignment {}", offset, alignment));
    }
    if (!entries_.emplace(name, Entry{type, std::move(dims), offset, bytes}).second) {
      return cursor.Damaged(what, "the name is there twice");
    }
    file_order_.push_back(name);
  }
  const uint64_t data_begin = (cursor.position() + alignment - 1) / alignment * alignment;
  return CheckExtents(data_begin);
}

absl::Status GgufFile::CheckExtents(uint64_t data_begin) {
  const uint64_t available = file_->size() > data_begin ? file_->size() - data_begin : 0;
  std::vector<std::pair<uint64_t, const std::string*>> order;
  for (auto& [name, entry] : entries_) {
    names_.push_back(name);  // the map is sorted
    if (entry.begin > available || entry.bytes > available - entry.begin) {
      return absl::DataLossError(
          fmt::format("{}: tensor \"{}\": {}{} takes {} bytes at {} of the data, the file has {}; "
                      "truncated?",
                      path(), Excerpt(name), entry.type->name, DimsToString(entry.dims),
                      entry.bytes, entry.begin, available));
    }
    if (entry.bytes > 0) order.emplace_back(entry.begin, &name);
  }
  std::sort(order.begin(), order.end());
  uint64_t end = 0;
  for (const auto& [begin, name] : order) {
    if (begin < end) {
      return absl::DataLossError(
          fmt::format("{}: tensor \"{}\": begins at byte {} of the data, overlapping the tensor "
                      "before it, which ends at {}",
                      path(), Excerpt(*name), begin, end));
    }
    end = begin + entries_.find(*name)->second.bytes;
  }
  for (auto& [name, entry] : entries_) {
    entry.begin = entry.bytes == 0 ? 0 : entry.begin + data_begin;
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorInfo> GgufFile::info(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoSuchTensor(name);
  const Entry& entry = it->second;
  return TensorInfo{entry.type->dtype, entry.dims, std::string(entry.type->name)};
}

absl::StatusOr<HostTensor> GgufFile::Read(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoSuchTensor(name);
  const Entry& entry = it->second;
  const std::span<const std::byte> bytes = file_->bytes().subspan(entry.begin, entry.bytes);
  if (entry.type->dequantize_block != nullptr) {
    HostTensor out = HostTensor::Empty(DType::kF32, entry.dims);
    Dequantize(*entry.type, bytes, out.mutable_as<float>());
    return out;
  }
  if (reinterpret_cast<uintptr_t>(bytes.data()) % ByteSize(entry.type->dtype) == 0) {
    return HostTensor::View(entry.type->dtype, entry.dims, bytes.data(), file_);
  }
  HostTensor copy = HostTensor::Empty(entry.type->dtype, entry.dims);
  std::memcpy(copy.mutable_bytes(), bytes.data(), bytes.size());
  return copy;
}

absl::Status GgufFile::ReadInto(std::string_view name, DType dtype,
                                std::span<std::byte> out) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoSuchTensor(name);
  const Entry& entry = it->second;
  if (entry.type->dequantize_block == nullptr) return TensorSource::ReadInto(name, dtype, out);
  MW_RETURN_IF_ERROR(CheckSize(name, entry.dims, dtype, out));
  const std::span<const std::byte> bytes = file_->bytes().subspan(entry.begin, entry.bytes);
  if (dtype == DType::kF32) {
    Dequantize(*entry.type, bytes, {reinterpret_cast<float*>(out.data()), out.size() / 4});
    return absl::OkStatus();
  }
  // By way of a piece that stays in the cache.
  constexpr size_t kBlocks = 64;
  const size_t block_bytes = static_cast<size_t>(entry.type->block_bytes);
  std::vector<float> piece;
  for (size_t begin = 0, written = 0; begin < bytes.size();) {
    const size_t blocks = std::min(kBlocks, (bytes.size() - begin) / block_bytes);
    piece.resize(blocks * static_cast<size_t>(entry.type->block_elements));
    Dequantize(*entry.type, bytes.subspan(begin, blocks * block_bytes), piece);
    const HostTensor view =
        HostTensor::View(DType::kF32, {static_cast<int64_t>(piece.size())},
                         reinterpret_cast<const std::byte*>(piece.data()), nullptr);
    const size_t size = piece.size() * ByteSize(dtype);
    view.ConvertInto(dtype, out.subspan(written, size));
    begin += blocks * block_bytes;
    written += size;
  }
  return absl::OkStatus();
}

}  // namespace mw::io
