#include "meshwright/train/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "meshwright/base/parallel_for.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/io/checksum.h"
#include "meshwright/io/file_util.h"
#include "meshwright/io/hf_folder.h"
#include "meshwright/io/mapped_file.h"
#include "meshwright/io/safetensors.h"
#include "meshwright/models/peft_config.h"
#include "meshwright/train/load_params.h"
#include "meshwright/train/tokenizer_source.h"

namespace mw::train {
namespace {

std::map<std::string, const nn::ParamSpec*> ByHfName(const std::vector<nn::ParamSpec>& specs) {
  std::map<std::string, const nn::ParamSpec*> spec_of;
  for (const nn::ParamSpec& spec : specs) {
    for (const std::string& name : spec.hf_names) spec_of.emplace(name, &spec);
  }
  return spec_of;
}

// W + scale * B A, each a matrix of float32.
HostTensor Merge(const HostTensor& weight, const HostTensor& a_RD, const HostTensor& b_FR,
                 float scale) {
  const auto rank = static_cast<size_t>(a_RD.dims()[0]);
  const auto width = static_cast<size_t>(a_RD.dims()[1]);
  HostTensor merged = HostTensor::Empty(DType::kF32, weight.dims());
  const float* const w = weight.as<float>().data();
  const float* const a = a_RD.as<float>().data();
  const float* const b = b_FR.as<float>().data();
  auto* const out = reinterpret_cast<float*>(merged.mutable_bytes());
  ParallelFor(weight.dims()[0], [&](int64_t index) {
    const auto f = static_cast<size_t>(index);
    std::vector<float> sum(width, 0.0f);
    for (size_t r = 0; r < rank; ++r) {
      const float factor = b[f * rank + r];
      for (size_t d = 0; d < width; ++d) sum[d] += factor * a[r * width + d];
    }
    for (size_t d = 0; d < width; ++d) out[f * width + d] = w[f * width + d] + scale * sum[d];
  });
  return merged;
}

// The file's size and a checksum of it, or of samples spread evenly over a larger one.
absl::Status AddSamples(const std::string& path, io::Checksum& checksum) {
  constexpr size_t kSamples = 16;
  constexpr size_t kSampleBytes = 1 << 16;
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<const io::MappedFile> file, io::MappedFile::Open(path));
  const uint64_t size = file->size();
  checksum.Update(std::as_bytes(std::span(&size, 1)));
  if (size <= kSamples * kSampleBytes) {
    checksum.Update(file->bytes());
    return absl::OkStatus();
  }
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t first = (size - kSampleBytes) / (kSamples - 1) * i;
    checksum.Update(file->bytes().subspan(first, kSampleBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExportSummary> ExportAdapter(const std::string& dir, const OpenedModel& base,
                                            const models::LoraOptions& lora,
                                            const std::vector<nn::ParamSpec>& specs,
                                            const TensorReader& read,
                                            const ExportOptions& options) {
  std::vector<io::TensorSpec> tensors;
  for (const nn::ParamSpec& spec : specs) {
    if (!spec.adapter) continue;
    for (const std::string& name : spec.hf_names) {
      tensors.push_back({name, options.dtype, HfDims(spec)});
    }
  }
  io::SortInReferenceOrder(tensors);
  MW_ASSIGN_OR_RETURN(
      const auto writer,
      io::SafetensorsWriter::Create(dir + "/" + kAdapterWeightsFile, tensors, {{"format", "pt"}}));
  MW_ASSIGN_OR_RETURN(const ExportSummary summary, WriteParts(*writer, tensors, read));
  MW_RETURN_IF_ERROR(writer->Finish().status());
  models::PeftConfig config;
  config.lora = lora;
  config.base = base.base_name;
  MW_RETURN_IF_ERROR(
      io::WriteFile(dir + "/" + kAdapterConfigFile, models::PeftConfigToJson(config)));
  if (options.tokenizer_from != nullptr) {
    MW_RETURN_IF_ERROR(WriteTokenizerFiles(*options.tokenizer_from, dir, options.chat_template));
  }
  return summary;
}

absl::StatusOr<ExportSummary> ExportAdapter(const std::string& dir, const OpenedModel& base,
                                            const models::LoraOptions& lora,
                                            const std::vector<nn::ParamSpec>& specs,
                                            std::vector<HostTensor> params,
                                            const ExportOptions& options) {
  MW_ASSIGN_OR_RETURN(const TensorReader read, ReaderOf(specs, std::move(params)));
  return ExportAdapter(dir, base, lora, specs, read, options);
}

std::vector<size_t> ExportedPlaces(const std::vector<nn::ParamSpec>& specs,
                                   const models::LoraOptions& lora) {
  std::vector<size_t> places;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!lora.enabled() || specs[i].adapter) places.push_back(i);
  }
  return places;
}

absl::StatusOr<ExportSummary> ExportTrained(const std::string& dir, const OpenedModel& opened,
                                            const models::LoraOptions& lora,
                                            const std::vector<nn::ParamSpec>& specs,
                                            std::vector<HostTensor> params,
                                            const ExportOptions& options) {
  return lora.enabled() ? ExportAdapter(dir, opened, lora, specs, std::move(params), options)
                        : ExportHf(dir, opened.config, specs, std::move(params), options);
}

TensorReader StoredReader(const OpenedModel& opened, const std::vector<nn::ParamSpec>& specs) {
  return [&opened, spec_of = ByHfName(specs)](const std::string& name) {
    return LoadTensor(opened, *spec_of.at(name), name);
  };
}

TensorReader MergedReader(const OpenedModel& opened, const std::vector<nn::ParamSpec>& specs) {
  const auto scale = static_cast<float>(opened.adapter->lora.scale());
  return [&opened, spec_of = ByHfName(specs),
          scale](const std::string& name) -> absl::StatusOr<HostTensor> {
    MW_ASSIGN_OR_RETURN(HostTensor weight, LoadTensor(opened, *spec_of.at(name), name));
    const std::string module =
        models::kPeftPrefix + name.substr(0, name.size() - std::string_view(".weight").size());
    const auto a = spec_of.find(module + ".lora_A.weight");
    if (a == spec_of.end()) return weight;
    const auto b = spec_of.find(module + ".lora_B.weight");
    MW_ASSIGN_OR_RETURN(const HostTensor a_RD, LoadTensor(opened, *a->second, a->first));
    MW_ASSIGN_OR_RETURN(const HostTensor b_FR, LoadTensor(opened, *b->second, b->first));
    return Merge(weight.ConvertTo(DType::kF32), a_RD.ConvertTo(DType::kF32),
                 b_FR.ConvertTo(DType::kF32), scale);
  };
}

absl::StatusOr<std::string> BaseFingerprint(const OpenedModel& opened) {
  if (opened.kind == OpenedModel::Kind::kRandom) return opened.base_name;
  io::Checksum checksum;
  if (opened.kind == OpenedModel::Kind::kGguf) {
    MW_RETURN_IF_ERROR(AddSamples(opened.path, checksum));
    return checksum.HexDigest();
  }
  MW_RETURN_IF_ERROR(AddSamples(opened.path + "/config.json", checksum));
  for (const std::string& name : static_cast<const io::HfFolder&>(*opened.weights).weight_files()) {
    MW_RETURN_IF_ERROR(AddSamples(opened.path + "/" + name, checksum));
  }
  return checksum.HexDigest();
}

absl::Status CheckSameBase(const OpenedModel& opened,
                           const std::map<std::string, std::string>& metadata,
                           const std::string& where) {
  const auto before = metadata.find(kBaseFingerprint);
  if (!opened.adapter || before == metadata.end()) return absl::OkStatus();
  MW_ASSIGN_OR_RETURN(const std::string now, BaseFingerprint(opened));
  if (now == before->second) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "the base model {} is not the one that the adapter in {} was trained on (its weights or its "
      "config.json have changed): give the model that the run began with, as --model to resume, "
      "else as --base",
      opened.base_name, where));
}

}  // namespace mw::train
