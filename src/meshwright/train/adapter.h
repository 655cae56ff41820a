// LoRA adapters on disk: folders that the peft library loads, and merging them.
#ifndef MESHWRIGHT_TRAIN_ADAPTER_H_
#define MESHWRIGHT_TRAIN_ADAPTER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/models/lora.h"
#include "meshwright/nn/param.h"
#include "meshwright/train/export_model.h"
#include "meshwright/train/open_model.h"

namespace mw::train {

// Writes adapter_config.json, adapter_model.safetensors and the tokenizer's files into the
// folder `dir`, which exists: an adapter to `base` (its own adapter, if any, is left aside) of
// those of `specs` that are an adapter's. `base` stands in it by its absolute path.
// Errors: InvalidArgument when `params` do not fit `specs`; what writing reports.
absl::StatusOr<ExportSummary> ExportAdapter(const std::string& dir, const OpenedModel& base,
                                            const models::LoraOptions& lora,
                                            const std::vector<nn::ParamSpec>& specs,
                                            std::vector<HostTensor> params,
                                            const ExportOptions& options);
absl::StatusOr<ExportSummary> ExportAdapter(const std::string& dir, const OpenedModel& base,
                                            const models::LoraOptions& lora,
                                            const std::vector<nn::ParamSpec>& specs,
                                            const TensorReader& read, const ExportOptions& options);

// The places in `specs` of what ExportTrained writes: with `lora` the adapters, trained or not,
// else everything.
std::vector<size_t> ExportedPlaces(const std::vector<nn::ParamSpec>& specs,
                                   const models::LoraOptions& lora);

// Writes what was trained: with `lora` as ExportAdapter does, else as ExportHf. `specs` and
// `params` may be those at ExportedPlaces alone.
absl::StatusOr<ExportSummary> ExportTrained(const std::string& dir, const OpenedModel& opened,
                                            const models::LoraOptions& lora,
                                            const std::vector<nn::ParamSpec>& specs,
                                            std::vector<HostTensor> params,
                                            const ExportOptions& options);

// Reads the tensors of a model, and of its adapter, as they are stored. Both arguments must
// outlive the reader.
TensorReader StoredReader(const OpenedModel& opened, const std::vector<nn::ParamSpec>& specs);

// Reads the tensors of a model whose adapter is merged into it:
//
//   W + scale * B A, in f32, where there are A and B; else W as it is stored.
//
// `specs` are unstacked, with adapters. Both arguments must outlive the reader.
// REQUIRES: opened.adapter; CheckWeights(opened, specs) is OK.
TensorReader MergedReader(const OpenedModel& opened, const std::vector<nn::ParamSpec>& specs);

// What tells the weights of one base model from those of another: a checksum of its config and
// of samples of its weight files, with their sizes. Of random: models it is their text.
//
// Cost: reads at most 1 MiB of each file.
// Errors: those of reading.
absl::StatusOr<std::string> BaseFingerprint(const OpenedModel& opened);

// In the metadata of a checkpoint with an adapter: BaseFingerprint of its base model.
inline constexpr const char* kBaseFingerprint = "base_fingerprint";

// OK when the base model of a checkpoint's adapter is the one that it was trained on, or nothing in
// `metadata`, the checkpoint's, says which that was.
// Errors: FailedPrecondition naming both, with `where` the checkpoint is; those of reading.
absl::Status CheckSameBase(const OpenedModel& opened,
                           const std::map<std::string, std::string>& metadata,
                           const std::string& where);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_ADAPTER_H_
