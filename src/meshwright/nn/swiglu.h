#ifndef MESHWRIGHT_NN_SWIGLU_H_
#define MESHWRIGHT_NN_SWIGLU_H_

#include <string_view>

#include "meshwright/graph/graph.h"
#include "meshwright/nn/linear.h"
#include "meshwright/nn/param.h"

namespace mw::nn {

// y = x * logistic(x), in f32 with one rounding at the end. Shapes: any float type.
graph::Value Silu(graph::Value x);

// Gated MLP of the parameters MODULE.gate_proj.weight, .up_proj and .down_proj, each with its
// adapter where it has one (nn/lora.h).
//
//   y = (silu(x Wg^T) * (x Wu^T)) Wd^T
//
// Marks mlp_gate, mlp_up and mlp_out for rematerialization.
//
// Shapes (global): x_BTD; Wg, Wu [F, D]; Wd [D, F]; returns y_BTD in the compute dtype.
// Sharding: F is activation_mlp; y is pinned to {activation_batch,
// activation_norm_length, activation_embed}, its cotangent to activation_length. A
// sharded F costs one reduction of y.
// Cost: 6 * B * T * D * F flops.
// Source: Shazeer 2020, arXiv:2002.05202.
graph::Value SwigluMlp(const ParamMap& params, std::string_view module, graph::Value x_BTD,
                       const ComputeOptions& options);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_SWIGLU_H_
