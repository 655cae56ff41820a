// Writing a model as a Hugging Face folder or a GGUF file.
#ifndef MESHWRIGHT_TRAIN_EXPORT_MODEL_H_
#define MESHWRIGHT_TRAIN_EXPORT_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/io/tensor_source.h"
#include "meshwright/models/model_config.h"
#include "meshwright/nn/param.h"
#include "meshwright/train/open_model.h"

namespace mw::train {

struct ExportOptions {
  DType dtype = DType::kF32;                    // f32, bf16 or f16
  uint64_t max_shard_bytes = 5'000'000'000;     // of a Hugging Face folder
  const OpenedModel* tokenizer_from = nullptr;  // null: no tokenizer is written
  // Jinja source, of a Hugging Face folder; "" = that of tokenizer_from.
  std::string chat_template = "";
};

struct ExportSummary {
  int64_t num_tensors = 0;
  uint64_t num_bytes = 0;  // of the tensors
};

// Gives one tensor by its Hugging Face name, in any float dtype. Called once for
// each, in the order of the file.
using TensorReader = std::function<absl::StatusOr<HostTensor>(const std::string& hf_name)>;

// A reader of the parts of `params`, each of which it holds until it is read, once.
// Errors: InvalidArgument when they do not fit `specs`.
absl::StatusOr<TensorReader> ReaderOf(const std::vector<nn::ParamSpec>& specs,
                                      std::vector<HostTensor> params);

// What `read` gives for a tensor. Errors: its own; InvalidArgument for other dims.
absl::StatusOr<HostTensor> ReadPart(const TensorReader& read, const std::string& hf_name,
                                    const Dims& dims);

// Writes `tensors` in their order, each in its dtype, with `writer.Write(name, tensor)`.
template <typename Writer>
absl::StatusOr<ExportSummary> WriteParts(Writer& writer, const std::vector<io::TensorSpec>& tensors,
                                         const TensorReader& read) {
  ExportSummary summary;
  for (const io::TensorSpec& spec : tensors) {
    MW_ASSIGN_OR_RETURN(HostTensor tensor, ReadPart(read, spec.name, spec.dims));
    tensor = tensor.ConvertTo(spec.dtype);
    MW_RETURN_IF_ERROR(writer.Write(spec.name, tensor));
    ++summary.num_tensors;
    summary.num_bytes += tensor.num_bytes();
  }
  return summary;
}

// Writes config.json, model.safetensors (shards with an index above
// max_shard_bytes) and the tokenizer's files into the folder `dir`, which exists:
// an AtomicDirectory's path, so that the model appears complete or not at all.
//
// The folder is what transformers loads. Tied embeddings are written once, under the
// embedding's name. One tensor at a time is converted; the model is never copied.
// `params` that are moved in are let go as they are written.
// Errors: InvalidArgument when `params` do not fit `specs`; what writing reports.
absl::StatusOr<ExportSummary> ExportHf(const std::string& dir, const models::ModelConfig& config,
                                       const std::vector<nn::ParamSpec>& specs,
                                       std::vector<HostTensor> params,
                                       const ExportOptions& options);
absl::StatusOr<ExportSummary> ExportHf(const std::string& dir, const models::ModelConfig& config,
                                       const std::vector<nn::ParamSpec>& specs,
                                       const TensorReader& read, const ExportOptions& options);

// Writes the GGUF file `path`, complete or not at all. One-dimensional tensors (the
// norms) are f32, as readers of the format expect; q and k rows are in the format's
// order. Without a tokenizer the file says so, as llama.cpp wants it.
absl::StatusOr<ExportSummary> ExportGguf(const std::string& path, const models::ModelConfig& config,
                                         const std::vector<nn::ParamSpec>& specs,
                                         std::vector<HostTensor> params,
                                         const ExportOptions& options);
absl::StatusOr<ExportSummary> ExportGguf(const std::string& path, const models::ModelConfig& config,
                                         const std::vector<nn::ParamSpec>& specs,
                                         const TensorReader& read, const ExportOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_EXPORT_MODEL_H_
