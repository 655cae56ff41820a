#ifndef MESHWRIGHT_NN_LORA_H_
#define MESHWRIGHT_NN_LORA_H_

#include <string_view>

#include "meshwright/graph/graph.h"
#include "meshwright/nn/linear.h"
#include "meshwright/nn/param.h"

namespace mw::nn {

// The linear layer `module` of `params`, with its low-rank adapter where it has one.
//
//   y = x W^T                                            W = MODULE.weight
//   y = x W^T + options.lora_scale * (x A^T) B^T         A, B = MODULE.lora_A.weight,
//   .lora_B.weight
//
// The two small products are apart from the large one, so that a frozen W needs no gradient
// and no second W exists.
//
// Shapes (global): x […, D]; W [F, D]; A [R, D]; B [F, R]; returns y […, F] in the compute dtype.
// Sharding: A and B lie as the dims of W that they share do; R is whole.
// Precision: each product and the sum in the compute dtype.
// Errors: GraphError(kInvalidArgument) when the shapes do not fit.
// Source: Hu et al. 2021, arXiv:2106.09685; the order of operations is peft's
// (peft/tuners/lora/layer.py, Linear.forward).
graph::Value LoraLinear(const ParamMap& params, std::string_view module, graph::Value x,
                        const ComputeOptions& options);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_LORA_H_
