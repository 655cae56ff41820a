// LoadParams: a model's weights in the layout and dtype that the engine wants.
#ifndef MESHWRIGHT_TRAIN_LOAD_PARAMS_H_
#define MESHWRIGHT_TRAIN_LOAD_PARAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/core/host_tensor.h"
#include "meshwright/nn/param.h"
#include "meshwright/train/open_model.h"

namespace mw::train {

// The parameters in the order of `specs` (those of opened.model->Params).
//
// Each tensor of the file is read, dequantized or converted straight to its place:
// a stacked parameter is never held twice. An unstacked one that the file stores in
// `dtype` is a view of the mapped file: take it as read-only. The q and k rows of
// GGUF files come out in Hugging Face's order. Values of random: models depend on the
// seed and the Hugging Face tensor name only, not on stacking. Adapters come from the opened
// one; those of a model that was opened without are fresh, drawn with `adapter_seed`.
//
// Errors: what CheckWeights reports; InvalidArgument for a `dtype` that is not f32,
// bf16 or f16.
// Cost: all cores; each byte of the file is read once.
absl::StatusOr<std::vector<HostTensor>> LoadParams(const OpenedModel& opened,
                                                   const std::vector<nn::ParamSpec>& specs,
                                                   DType dtype, uint64_t adapter_seed = 0);

// OK when the file's tensors are the model's, and those of an opened adapter the adapter's.
//
// Tied embeddings have no head of their own: one that is stored nevertheless must
// equal the embedding (compared byte by byte).
// Errors: InvalidArgument naming the file and the tensor: missing, of another shape or
// no float type, unknown to the model, or a tied head that differs from the embedding.
absl::Status CheckWeights(const OpenedModel& opened, const std::vector<nn::ParamSpec>& specs);

// One tensor of `spec`, under its Hugging Face name and with the rows in that format's
// order, in the dtype of the file (f32 for quantized tensors and random: models): a
// view of the mapped file where the bytes are usable as they are.
// REQUIRES: `hf_name` is one of spec.hf_names.
absl::StatusOr<HostTensor> LoadTensor(const OpenedModel& opened, const nn::ParamSpec& spec,
                                      const std::string& hf_name);

// The dims of each of the spec's Hugging Face tensors.
Dims HfDims(const nn::ParamSpec& spec);

// The narrowest of f32, bf16 and f16 that keeps the model exactly: the dtype of its
// matrices when they share one and the vectors' values fit, else f32. Quantized
// tensors count as f32, and so do random: models. Of an opened adapter with `of_adapter`.
absl::StatusOr<DType> StoredDType(const OpenedModel& opened, bool of_adapter = false);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_LOAD_PARAMS_H_
