#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <set>
#include <type_traits>
#include <utility>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/checked_size.h"
#include "meshwright/io/gguf.h"
#include "meshwright/io/tensor_sequence.h"

namespace mw::io {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr size_t kMaxDims = 4;  // GGML_MAX_DIMS

template <typename T>
void Put(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void PutString(std::string& out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out += text;
}

// Appends `value` in the stored type T; false when T cannot hold it.
template <typename T, typename Wide>
bool PutNarrowed(std::string& out, Wide value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<Wide, bool>) {
    if (!std::in_range<T>(value)) return false;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (std::isfinite(value) && !std::isfinite(static_cast<T>(value))) return false;
  }
  Put<T>(out, static_cast<T>(value));
  return true;
}

template <typename Wide>
bool PutNumber(std::string& out, GgufType type, Wide value) {
  if constexpr (std::is_same_v<Wide, uint64_t>) {
    switch (type) {
      case GgufType::kU8:
        return PutNarrowed<uint8_t>(out, value);
      case GgufType::kU16:
        return PutNarrowed<uint16_t>(out, value);
      case GgufType::kU32:
        return PutNarrowed<uint32_t>(out, value);
      case GgufType::kU64:
        return PutNarrowed<uint64_t>(out, value);
      default:
        return false;
    }
  } else if constexpr (std::is_same_v<Wide, int64_t>) {
    switch (type) {
      case GgufType::kI8:
        return PutNarrowed<int8_t>(out, value);
      case GgufType::kI16:
        return PutNarrowed<int16_t>(out, value);
      case GgufType::kI32:
        return PutNarrowed<int32_t>(out, value);
      case GgufType::kI64:
        return PutNarrowed<int64_t>(out, value);
      default:
        return false;
    }
  } else if constexpr (std::is_same_v<Wide, double>) {
    if (type == GgufType::kF32) return PutNarrowed<float>(out, value);
    return type == GgufType::kF64 && PutNarrowed<double>(out, value);
  } else {
    static_assert(std::is_same_v<Wide, bool>);
    return type == GgufType::kBool && PutNarrowed<uint8_t>(out, value);
  }
}

// Appends the value without its type; false when `data` is not what the type says.
bool PutValue(std::string& out, const GgufValue& value) {
  return std::visit(
      [&](const auto& data) {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_arithmetic_v<T>) {
          return PutNumber(out, value.type, data);
        } else if constexpr (std::is_same_v<T, std::string>) {
          if (value.type != GgufType::kString) return false;
          PutString(out, data);
          return true;
        } else {
          if (value.type != GgufType::kArray) return false;
          Put<uint32_t>(out, static_cast<uint32_t>(value.element_type));
          Put<uint64_t>(out, data.size());
          for (size_t i = 0; i < data.size(); ++i) {
            using Element = typename T::value_type;
            if constexpr (std::is_same_v<Element, GgufValue>) {
              if (value.element_type != GgufType::kArray || data[i].type != GgufType::kArray ||
                  !PutValue(out, data[i])) {
                return false;
              }
            } else if constexpr (std::is_same_v<Element, std::string>) {
              if (value.element_type != GgufType::kString) return false;
              PutString(out, data[i]);
            } else if (!PutNumber(out, value.element_type, static_cast<Element>(data[i]))) {
              return false;
            }
          }
          return true;
        }
      },
      value.data);
}

uint64_t Padding(uint64_t size, uint64_t alignment) {
  return (alignment - size % alignment) % alignment;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufWriter>> GgufWriter::Create(const std::string& path,
                                                               const GgufMetadata& metadata,
                                                               std::vector<TensorSpec> specs) {
  const auto invalid = [&](std::string_view reason) {
    return absl::InvalidArgumentError(fmt::format("cannot write {}: {}", path, reason));
  };
  uint64_t alignment = kDefaultAlignment;
  if (const GgufValue* value = metadata.Find("general.alignment")) {
    const auto* number = std::get_if<uint64_t>(&value->data);
    // Above 2^20 the padding would outweigh the tensors.
    if (value->type != GgufType::kU32 || number == nullptr || !std::has_single_bit(*number) ||
        *number > (1u << 20)) {
      return invalid("general.alignment must be a power of two up to 1048576, of type u32");
    }
    alignment = *number;
  }
  std::string header = "GGUF";
  Put<uint32_t>(header, 3);
  Put<uint64_t>(header, specs.size());
  Put<uint64_t>(header, metadata.entries().size());
  for (const auto& [key, value] : metadata.entries()) {
    PutString(header, key);
    Put<uint32_t>(header, static_cast<uint32_t>(value.type));
    if (!PutValue(header, value)) {
      return invalid(
          fmt::format("metadata \"{}\": its value is not a {}", key, GgufTypeName(value.type)));
    }
  }
  std::set<std::string_view> seen;
  uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    if (!seen.insert(spec.name).second) {
      return invalid(fmt::format("there are two tensors \"{}\"", spec.name));
    }
    const GgmlType* type = GgmlTypeOf(spec.dtype);
    if (type == nullptr) {
      return invalid(fmt::format("tensor \"{}\": GGUF has no {}; convert it first", spec.name,
                                 DTypeName(spec.dtype)));
    }
    if (spec.dims.size() > kMaxDims) {
      return invalid(fmt::format("tensor \"{}\" has {} dims; GGUF takes at most {}", spec.name,
                                 spec.dims.size(), kMaxDims));
    }
    const auto bytes = CheckedProduct(spec.dims, ByteSize(spec.dtype));
    const auto end = bytes ? CheckedAdd(offset, *bytes) : std::nullopt;
    if (!end || !CheckedAdd(*end, alignment)) {
      return invalid(fmt::format("tensor \"{}\" {} does not fit into a file", spec.name,
                                 DimsToString(spec.dims)));
    }
    PutString(header, spec.name);
    Put<uint32_t>(header, static_cast<uint32_t>(spec.dims.size()));
    for (size_t i = spec.dims.size(); i-- > 0;) {
      Put<uint64_t>(header, static_cast<uint64_t>(spec.dims[i]));
    }
    Put<uint32_t>(header, type->id);
    Put<uint64_t>(header, offset);
    offset = *end + Padding(*end, alignment);
  }
  header.append(Padding(header.size(), alignment), '\0');
  MW_ASSIGN_OR_RETURN(std::unique_ptr<FileWriter> file, FileWriter::Create(path));
  MW_RETURN_IF_ERROR(file->Append(header));
  return std::unique_ptr<GgufWriter>(new GgufWriter(std::move(specs), alignment, std::move(file)));
}

absl::Status GgufWriter::Write(std::string_view name, const HostTensor& tensor) {
  MW_RETURN_IF_ERROR(CheckNextTensor(file_->path(), specs_, next_, name, tensor));
  MW_RETURN_IF_ERROR(file_->Append(std::span(tensor.bytes(), tensor.num_bytes())));
  MW_RETURN_IF_ERROR(file_->Append(std::string(Padding(tensor.num_bytes(), alignment_), '\0')));
  ++next_;
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> GgufWriter::Finish() {
  MW_RETURN_IF_ERROR(CheckAllWritten(file_->path(), specs_, next_));
  return file_->Finish();
}

}  // namespace mw::io
