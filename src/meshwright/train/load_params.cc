#include "meshwright/train/load_params.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "meshwright/base/parallel_for.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/rope_permutation.h"
#include "meshwright/models/registry.h"
#include "meshwright/models/weight_names.h"
#include "meshwright/train/random_params.h"

namespace mw::train {
namespace {

// A tensor of the model in the file.
struct Stored {
  const io::TensorSource* source;
  std::string name;
  int64_t permuted_heads = 0;  // 0 = rows are in Hugging Face's order
};

bool IsLoadable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// The file that has the parameter; null for one that is drawn.
const io::TensorSource* SourceOf(const OpenedModel& opened, const nn::ParamSpec& spec) {
  if (!spec.adapter) return opened.weights.get();
  return opened.adapter ? opened.adapter->weights.get() : nullptr;
}

// REQUIRES: SourceOf is not null.
absl::StatusOr<Stored> FindStored(const OpenedModel& opened, const nn::ParamSpec& spec,
                                  const std::string& hf_name) {
  const io::TensorSource* source = SourceOf(opened, spec);
  if (spec.adapter || opened.kind != OpenedModel::Kind::kGguf) return Stored{source, hf_name, 0};
  MW_ASSIGN_OR_RETURN(const models::Family* family, models::FindFamily(opened.config.family));
  auto mapped = models::HfToGguf(*family, opened.config, hf_name);
  if (!mapped) {
    return absl::InvalidArgumentError(
        fmt::format("{}: GGUF has no name for the tensor \"{}\"", opened.path, hf_name));
  }
  return Stored{source, std::move(mapped->name), mapped->permuted_heads};
}

// The Hugging Face name of a tensor of the file; nullopt for one that is none.
absl::StatusOr<std::optional<std::string>> HfNameOf(const OpenedModel& opened,
                                                    const std::string& stored_name) {
  if (opened.kind != OpenedModel::Kind::kGguf) return stored_name;
  MW_ASSIGN_OR_RETURN(const models::Family* family, models::FindFamily(opened.config.family));
  auto mapped = models::GgufToHf(*family, opened.config, stored_name);
  return mapped ? std::optional(std::move(mapped->name)) : std::nullopt;
}

// Tensors that old converters store although the config says the same.
bool IsDerived(const OpenedModel& opened, std::string_view stored_name) {
  if (opened.kind == OpenedModel::Kind::kGguf) return stored_name == "rope_freqs.weight";
  return stored_name.ends_with(".rotary_emb.inv_freq");
}

absl::Status Wrong(std::string_view path, std::string_view tensor, std::string_view problem) {
  return absl::InvalidArgumentError(fmt::format("{}: tensor \"{}\" {}", path, tensor, problem));
}

// A head stored beside the embeddings that the config ties it to.
absl::Status CheckTiedHead(const OpenedModel& opened, const std::string& head,
                           const std::string& embedding) {
  MW_ASSIGN_OR_RETURN(HostTensor a, opened.weights->Read(head));
  MW_ASSIGN_OR_RETURN(HostTensor b, opened.weights->Read(embedding));
  if (a.dtype() != b.dtype()) {
    a = a.ConvertTo(DType::kF32);
    b = b.ConvertTo(DType::kF32);
  }
  if (a.dims() == b.dims() && std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0) {
    return absl::OkStatus();
  }
  return Wrong(opened.path, head,
               fmt::format("differs from \"{}\", although config.json ties them "
                           "(tie_word_embeddings true); set it to false to keep both, or remove "
                           "the head",
                           embedding));
}

// Reads a tensor into `out`, rows in Hugging Face's order.
absl::Status ReadTensor(const Stored& stored, const Dims& dims, DType dtype,
                        std::span<std::byte> out) {
  MW_RETURN_IF_ERROR(stored.source->ReadInto(stored.name, dtype, out));
  if (stored.permuted_heads == 0) return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(
      const HostTensor ordered,
      io::UnpermuteRope(HostTensor::View(dtype, dims, out.data(), nullptr), stored.permuted_heads));
  std::memcpy(out.data(), ordered.bytes(), out.size());
  return absl::OkStatus();
}

// A piece of a parameter that is filled by one thread.
struct Piece {
  size_t param;
  size_t part;         // which of the spec's Hugging Face tensors
  int64_t first = 0;   // element of that tensor
  int64_t count = -1;  // elements; all when -1
};

// Runs the pieces, largest first, and returns the first one's error.
absl::Status RunPieces(const std::vector<Piece>& pieces,
                       const std::function<absl::Status(const Piece&)>& run) {
  std::mutex mutex;
  size_t failed = pieces.size();
  absl::Status status;
  ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const absl::Status result = run(pieces[static_cast<size_t>(i)]);
    if (result.ok()) return;
    const std::lock_guard lock(mutex);
    if (static_cast<size_t>(i) < failed) {
      failed = static_cast<size_t>(i);
      status = result;
    }
  });
  return status;
}

std::span<std::byte> PartBytes(HostTensor& param, const nn::ParamSpec& spec, size_t part) {
  const size_t bytes = param.num_bytes() / spec.hf_names.size();
  return {param.mutable_bytes() + part * bytes, bytes};
}

uint64_t SeedOf(const OpenedModel& opened, const nn::ParamSpec& spec, uint64_t adapter_seed) {
  return spec.adapter ? adapter_seed : opened.random_seed;
}

// The parameters that no file has.
void DrawParams(const OpenedModel& opened, const std::vector<nn::ParamSpec>& specs, DType dtype,
                uint64_t adapter_seed, std::vector<HostTensor>& params) {
  constexpr int64_t kPieceElements = 1 << 20;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (SourceOf(opened, specs[i]) != nullptr) continue;
    params[i] = HostTensor::Empty(dtype, specs[i].dims);
    const int64_t size = NumElements(HfDims(specs[i]));
    for (size_t part = 0; part < specs[i].hf_names.size(); ++part) {
      for (int64_t first = 0; first < size; first += kPieceElements) {
        pieces.push_back({i, part, first, std::min(kPieceElements, size - first)});
      }
    }
  }
  const size_t element = ByteSize(dtype);
  ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t index) {
    const Piece& piece = pieces[static_cast<size_t>(index)];
    const nn::ParamSpec& spec = specs[piece.param];
    FillRandom(spec.init, SeedOf(opened, spec, adapter_seed), spec.hf_names[piece.part],
               static_cast<uint64_t>(piece.first), dtype,
               PartBytes(params[piece.param], spec, piece.part)
                   .subspan(static_cast<size_t>(piece.first) * element,
                            static_cast<size_t>(piece.count) * element));
  });
}

// Names of stored tensors by those of Hugging Face.
using StoredNames = std::map<std::string, std::string, std::less<>>;

absl::Status CheckStored(const OpenedModel& opened, const nn::ParamSpec& spec,
                         StoredNames& stored_of) {
  const Dims dims = HfDims(spec);
  for (const std::string& hf_name : spec.hf_names) {
    MW_ASSIGN_OR_RETURN(const Stored stored, FindStored(opened, spec, hf_name));
    const auto wrong = [&](std::string_view problem) {
      return Wrong(stored.source->path(), stored.name, problem);
    };
    if (!stored.source->Contains(stored.name)) {
      return wrong(
          hf_name == "lm_head.weight"
              ? "is missing; set tie_word_embeddings to true in config.json if the head is the "
                "embedding table"
              : fmt::format("is missing; the {} needs it as {}",
                            spec.adapter ? "adapter" : opened.config.family + " model",
                            DimsToString(dims)));
    }
    MW_ASSIGN_OR_RETURN(const io::TensorInfo info, stored.source->info(stored.name));
    if (info.dims != dims) {
      return wrong(fmt::format("is {}, the config asks for {}", DimsToString(info.dims),
                               DimsToString(dims)));
    }
    if (!IsFloat(info.dtype)) {
      return wrong(
          fmt::format("is stored as {}; weights are floating-point numbers", info.stored_as));
    }
    stored_of.emplace(hf_name, stored.name);
  }
  return absl::OkStatus();
}

}  // namespace

Dims HfDims(const nn::ParamSpec& spec) {
  return spec.stacked ? Dims(spec.dims.begin() + 1, spec.dims.end()) : spec.dims;
}

absl::Status CheckWeights(const OpenedModel& opened, const std::vector<nn::ParamSpec>& specs) {
  StoredNames stored_of;
  for (const nn::ParamSpec& spec : specs) {
    if (SourceOf(opened, spec) == nullptr) continue;
    MW_RETURN_IF_ERROR(CheckStored(opened, spec, stored_of));
  }
  if (opened.adapter) {
    for (const std::string& name : opened.adapter->weights->names()) {
      if (stored_of.contains(name)) continue;
      return Wrong(opened.adapter->weights->path(), name,
                   fmt::format("is none of adapters of {} for a {} model of {} layers",
                               fmt::join(opened.adapter->lora.Targets(), ", "),
                               opened.config.family, opened.config.num_layers));
    }
  }
  if (opened.weights == nullptr) return absl::OkStatus();
  for (const std::string& name : opened.weights->names()) {
    MW_ASSIGN_OR_RETURN(const std::optional<std::string> hf_name, HfNameOf(opened, name));
    if ((hf_name && stored_of.contains(*hf_name)) || IsDerived(opened, name)) continue;
    const auto embedding = stored_of.find("model.embed_tokens.weight");
    if (hf_name == "lm_head.weight" && opened.config.tie_word_embeddings &&
        embedding != stored_of.end()) {
      MW_RETURN_IF_ERROR(CheckTiedHead(opened, name, embedding->second));
      continue;
    }
    return Wrong(opened.path, name,
                 fmt::format("is unknown to a {} model of {} layers; another architecture or a "
                             "wrong config?",
                             opened.config.family, opened.config.num_layers));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<HostTensor>> LoadParams(const OpenedModel& opened,
                                                   const std::vector<nn::ParamSpec>& specs,
                                                   DType dtype, uint64_t adapter_seed) {
  if (!IsLoadable(dtype)) {
    return absl::InvalidArgumentError(fmt::format(
        "cannot load weights as {}; weight dtypes are f32, bf16 and f16", DTypeName(dtype)));
  }
  std::vector<HostTensor> params(specs.size());
  MW_RETURN_IF_ERROR(CheckWeights(opened, specs));
  DrawParams(opened, specs, dtype, adapter_seed, params);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (SourceOf(opened, specs[i]) == nullptr) continue;
    if (specs[i].stacked) params[i] = HostTensor::Empty(dtype, specs[i].dims);
    for (size_t part = 0; part < specs[i].hf_names.size(); ++part) pieces.push_back({i, part});
  }
  std::stable_sort(pieces.begin(), pieces.end(), [&](const Piece& a, const Piece& b) {
    return NumElements(HfDims(specs[a.param])) > NumElements(HfDims(specs[b.param]));
  });
  MW_RETURN_IF_ERROR(RunPieces(pieces, [&](const Piece& piece) -> absl::Status {
    const nn::ParamSpec& spec = specs[piece.param];
    HostTensor& param = params[piece.param];
    MW_ASSIGN_OR_RETURN(const Stored stored, FindStored(opened, spec, spec.hf_names[piece.part]));
    if (!spec.stacked) {
      MW_ASSIGN_OR_RETURN(const io::TensorInfo info, stored.source->info(stored.name));
      if (info.dtype == dtype && stored.permuted_heads == 0) {
        MW_ASSIGN_OR_RETURN(param, stored.source->Read(stored.name));
        return absl::OkStatus();
      }
      param = HostTensor::Empty(dtype, spec.dims);
    }
    return ReadTensor(stored, HfDims(spec), dtype, PartBytes(param, spec, piece.part));
  }));
  return params;
}

absl::StatusOr<HostTensor> LoadTensor(const OpenedModel& opened, const nn::ParamSpec& spec,
                                      const std::string& hf_name) {
  if (SourceOf(opened, spec) == nullptr) {
    HostTensor tensor = HostTensor::Empty(DType::kF32, HfDims(spec));
    FillRandom(spec.init, SeedOf(opened, spec, 0), hf_name, 0, DType::kF32,
               {tensor.mutable_bytes(), tensor.num_bytes()});
    return tensor;
  }
  MW_ASSIGN_OR_RETURN(const Stored stored, FindStored(opened, spec, hf_name));
  MW_ASSIGN_OR_RETURN(HostTensor tensor, stored.source->Read(stored.name));
  if (stored.permuted_heads == 0) return tensor;
  return io::UnpermuteRope(tensor, stored.permuted_heads);
}

absl::StatusOr<DType> StoredDType(const OpenedModel& opened, bool of_adapter) {
  const io::TensorSource* const weights =
      of_adapter ? opened.adapter->weights.get() : opened.weights.get();
  if (weights == nullptr) return DType::kF32;
  std::optional<DType> dtype;
  std::vector<std::string> vectors;
  for (const std::string& name : weights->names()) {
    if (!of_adapter && IsDerived(opened, name)) continue;
    MW_ASSIGN_OR_RETURN(const io::TensorInfo info, weights->info(name));
    if (info.dims.size() < 2) {
      vectors.push_back(name);
    } else if (dtype && *dtype != info.dtype) {
      return DType::kF32;
    } else {
      dtype = info.dtype;
    }
  }
  if (!dtype || !IsLoadable(*dtype)) return DType::kF32;
  for (const std::string& name : vectors) {
    MW_ASSIGN_OR_RETURN(const HostTensor vector, weights->Read(name));
    const HostTensor exact = vector.ConvertTo(DType::kF32);
    const HostTensor rounded = exact.ConvertTo(*dtype).ConvertTo(DType::kF32);
    if (std::memcmp(exact.bytes(), rounded.bytes(), exact.num_bytes()) != 0) return DType::kF32;
  }
  return *dtype;
}

}  // namespace mw::train
