// Int8 weights: matrices in blocks of int8 with scales, for generation alone.
#ifndef MESHWRIGHT_MODELS_INT8_WEIGHTS_H_
#define MESHWRIGHT_MODELS_INT8_WEIGHTS_H_

#include <vector>

#include "absl/status/status.h"
#include "meshwright/models/model.h"
#include "meshwright/nn/param.h"

namespace mw::models {

// `options` of the same model with its own weights.
ModelOptions WithFloatWeights(ModelOptions options);

// Whether it is a matrix that becomes int8: those of the model itself, not norms and adapters.
bool BecomesInt8(const nn::ParamSpec& spec);

// `params` with each matrix as s8, and after it its scales, as ops::Quantize makes them.
std::vector<nn::ParamSpec> AsInt8(const std::vector<nn::ParamSpec>& params);

// Errors: InvalidArgument naming a matrix whose rows are not whole blocks.
absl::Status CheckInt8(const std::vector<nn::ParamSpec>& params);

}  // namespace mw::models

#endif  // MESHWRIGHT_MODELS_INT8_WEIGHTS_H_
