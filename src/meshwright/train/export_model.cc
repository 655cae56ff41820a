#include "meshwright/train/export_model.h"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <variant>

#include "meshwright/base/status_macros.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/gguf.h"
#include "meshwright/io/rope_permutation.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/io/safetensors_shards.h"
#include "meshwright/models/gguf_config.h"
#include "meshwright/models/hf_config.h"
#include "meshwright/models/registry.h"
#include "meshwright/models/weight_names.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/tokenizer_source.h"

namespace mw::train {
namespace {

absl::Status CheckDType(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(fmt::format(
      "cannot export weights as {}; weight dtypes are f32, bf16 and f16", DTypeName(dtype)));
}

// The format's number of the type that most tensors have.
// Source: llama.cpp, include/llama.h, enum llama_ftype.
uint32_t GgufFileType(DType dtype) {
  return dtype == DType::kF32 ? 0 : dtype == DType::kF16 ? 1 : 32;
}

// Says that there is no tokenizer, without which llama.cpp does not load a file, and keeps
// the ids that the tokenizer's keys would hold.
// Source: llama.cpp, src/llama-vocab.cpp, LLAMA_VOCAB_TYPE_NONE.
void AddNoTokenizer(const models::ModelConfig& config, io::GgufMetadata& metadata) {
  metadata.Set("tokenizer.ggml.model", io::GgufValue::String("none"));
  const auto set_id = [&](const char* key, const std::vector<int64_t>& ids) {
    if (!ids.empty()) metadata.Set(key, io::GgufValue::U32(static_cast<uint32_t>(ids.front())));
  };
  set_id("tokenizer.ggml.bos_token_id", config.bos_token_ids);
  set_id("tokenizer.ggml.eos_token_id", config.eos_token_ids);
}

}  // namespace

absl::StatusOr<TensorReader> ReaderOf(const std::vector<nn::ParamSpec>& specs,
                                      std::vector<HostTensor> params) {
  if (params.size() != specs.size()) {
    return absl::InvalidArgumentError(
        fmt::format("export got {} tensors for {} parameters", params.size(), specs.size()));
  }
  std::map<std::string, HostTensor> parts;
  for (size_t i = 0; i < specs.size(); ++i) {
    const HostTensor& param = params[i];
    if (param.dims() != specs[i].dims || !IsFloat(param.dtype())) {
      return absl::InvalidArgumentError(fmt::format(
          "export of the parameter \"{}\": got {}{}, the model has float {}", specs[i].name,
          DTypeName(param.dtype()), DimsToString(param.dims()), DimsToString(specs[i].dims)));
    }
    const Dims dims = HfDims(specs[i]);
    const size_t bytes = static_cast<size_t>(NumElements(dims)) * ByteSize(param.dtype());
    for (size_t part = 0; part < specs[i].hf_names.size(); ++part) {
      parts.emplace(
          specs[i].hf_names[part],
          HostTensor::View(param.dtype(), dims, param.bytes() + part * bytes, param.owner()));
    }
  }
  return [parts = std::move(parts)](const std::string& name) mutable -> absl::StatusOr<HostTensor> {
    return std::move(parts.extract(name).mapped());
  };
}

absl::StatusOr<HostTensor> ReadPart(const TensorReader& read, const std::string& hf_name,
                                    const Dims& dims) {
  MW_ASSIGN_OR_RETURN(HostTensor tensor, read(hf_name));
  if (tensor.dims() != dims) {
    return absl::InvalidArgumentError(fmt::format("export of the tensor \"{}\": got {}, not {}",
                                                  hf_name, DimsToString(tensor.dims()),
                                                  DimsToString(dims)));
  }
  return tensor;
}

absl::StatusOr<ExportSummary> ExportHf(const std::string& dir, const models::ModelConfig& config,
                                       const std::vector<nn::ParamSpec>& specs,
                                       const TensorReader& read, const ExportOptions& options) {
  MW_RETURN_IF_ERROR(CheckDType(options.dtype));
  MW_ASSIGN_OR_RETURN(const std::string config_text,
                      models::ModelConfigToHfJson(config, options.dtype));
  std::vector<io::TensorSpec> tensors;
  for (const nn::ParamSpec& spec : specs) {
    for (const std::string& name : spec.hf_names) {
      tensors.push_back({name, options.dtype, HfDims(spec)});
    }
  }
  io::SortInReferenceOrder(tensors);
  io::ShardOptions shards;
  shards.max_shard_bytes = options.max_shard_bytes;
  MW_ASSIGN_OR_RETURN(const auto writer,
                      io::ShardedSafetensorsWriter::Create(dir, tensors, shards));
  MW_ASSIGN_OR_RETURN(const ExportSummary summary, WriteParts(*writer, tensors, read));
  MW_RETURN_IF_ERROR(writer->Finish().status());
  MW_RETURN_IF_ERROR(io::WriteFile(dir + "/config.json", config_text));
  if (options.tokenizer_from != nullptr) {
    MW_RETURN_IF_ERROR(WriteTokenizerFiles(*options.tokenizer_from, dir, options.chat_template));
  }
  return summary;
}

absl::StatusOr<ExportSummary> ExportHf(const std::string& dir, const models::ModelConfig& config,
                                       const std::vector<nn::ParamSpec>& specs,
                                       std::vector<HostTensor> params,
                                       const ExportOptions& options) {
  MW_ASSIGN_OR_RETURN(const TensorReader read, ReaderOf(specs, std::move(params)));
  return ExportHf(dir, config, specs, read, options);
}

absl::StatusOr<ExportSummary> ExportGguf(const std::string& path, const models::ModelConfig& config,
                                         const std::vector<nn::ParamSpec>& specs,
                                         const TensorReader& read, const ExportOptions& options) {
  MW_RETURN_IF_ERROR(CheckDType(options.dtype));
  MW_ASSIGN_OR_RETURN(const models::Family* family, models::FindFamily(config.family));
  MW_ASSIGN_OR_RETURN(const std::vector<models::GgufEntry> entries,
                      models::ModelConfigToGguf(config));
  io::GgufMetadata metadata(path);
  for (const auto& [key, value] : entries) {
    if (const auto* number = std::get_if<uint32_t>(&value)) {
      metadata.Set(key, io::GgufValue::U32(*number));
    } else if (const auto* real = std::get_if<float>(&value)) {
      metadata.Set(key, io::GgufValue::F32(*real));
    } else if (const auto* wide = std::get_if<double>(&value)) {
      metadata.Set(key, io::GgufValue::F64(*wide));
    } else {
      metadata.Set(key, io::GgufValue::String(std::get<std::string>(value)));
    }
  }
  metadata.Set("general.file_type", io::GgufValue::U32(GgufFileType(options.dtype)));
  if (options.tokenizer_from != nullptr) {
    MW_RETURN_IF_ERROR(AddGgufTokenizer(*options.tokenizer_from, metadata));
  }
  if (!metadata.Contains("tokenizer.ggml.model")) AddNoTokenizer(config, metadata);

  std::vector<io::TensorSpec> tensors;
  std::vector<std::string> hf_names;  // of each of `tensors`; "" = the rotary factors
  std::vector<int64_t> permuted_heads;
  const std::vector<float> factors =
      config.rope.type == nn::RopeType::kLlama3 || config.rope.type == nn::RopeType::kFreqFactors
          ? nn::RopeFreqFactors(config.rope, config.head_dim)
          : std::vector<float>();
  if (!factors.empty()) {
    tensors.push_back({"rope_freqs.weight", DType::kF32, {static_cast<int64_t>(factors.size())}});
    hf_names.emplace_back();
    permuted_heads.push_back(0);
  }
  for (const nn::ParamSpec& spec : specs) {
    const Dims dims = HfDims(spec);
    for (const std::string& name : spec.hf_names) {
      const auto mapped = models::HfToGguf(*family, config, name);
      if (!mapped) {
        return absl::InvalidArgumentError(
            fmt::format("{}: GGUF has no name for the tensor \"{}\"", path, name));
      }
      tensors.push_back({mapped->name, dims.size() < 2 ? DType::kF32 : options.dtype, dims});
      hf_names.push_back(name);
      permuted_heads.push_back(mapped->permuted_heads);
    }
  }
  MW_ASSIGN_OR_RETURN(const auto writer, io::GgufWriter::Create(path, metadata, tensors));
  ExportSummary summary;
  for (size_t i = 0; i < tensors.size(); ++i) {
    HostTensor tensor;
    if (hf_names[i].empty()) {
      tensor = HostTensor::From<float>(DType::kF32, tensors[i].dims, factors);
    } else {
      MW_ASSIGN_OR_RETURN(tensor, ReadPart(read, hf_names[i], tensors[i].dims));
      tensor = tensor.ConvertTo(tensors[i].dtype);
    }
    if (permuted_heads[i] != 0) {
      MW_ASSIGN_OR_RETURN(tensor, io::PermuteRope(tensor, permuted_heads[i]));
    }
    MW_RETURN_IF_ERROR(writer->Write(tensors[i].name, tensor));
    ++summary.num_tensors;
    summary.num_bytes += tensor.num_bytes();
  }
  MW_RETURN_IF_ERROR(writer->Finish().status());
  return summary;
}

absl::StatusOr<ExportSummary> ExportGguf(const std::string& path, const models::ModelConfig& config,
                                         const std::vector<nn::ParamSpec>& specs,
                                         std::vector<HostTensor> params,
                                         const ExportOptions& options) {
  MW_ASSIGN_OR_RETURN(const TensorReader read, ReaderOf(specs, std::move(params)));
  return ExportGguf(path, config, specs, read, options);
}

}  // namespace mw::train
