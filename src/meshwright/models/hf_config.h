// Model configs as Hugging Face writes them (config.json).
#ifndef MESHWRIGHT_MODELS_HF_CONFIG_H_
#define MESHWRIGHT_MODELS_HF_CONFIG_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshwright/core/dtype.h"
#include "meshwright/models/model_config.h"

namespace mw::models {

// Reads a config.json, of transformers 4 (`rope_theta`, `rope_scaling` with
// `rope_type` or `type`) or 5 (`rope_parameters`).
//
// Whatever would change the model's maths and is not supported is an error naming
// the key: another activation, biases, a sliding window in use, an unknown rope
// type, partial rotation, quantized weights. Other unknown keys are left alone.
// Errors: NotFound for an unknown architecture, listing the known; InvalidArgument
// for text that is no JSON object, a missing key, a value of the wrong type or out
// of range; Unimplemented for what is not supported.
absl::StatusOr<ModelConfig> ModelConfigFromHfJson(std::string_view text);

// The config.json of a model stored in `dtype`, as transformers 4 and 5 load it.
//
// Errors: FailedPrecondition for rope frequency factors that no rope type gives.
absl::StatusOr<std::string> ModelConfigToHfJson(const ModelConfig& config, DType dtype);

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_HF_CONFIG_H_
