#ifndef MESHWRIGHT_NN_LINEAR_H_
#define MESHWRIGHT_NN_LINEAR_H_

#include <string>

#include "meshwright/graph/graph.h"
#include "meshwright/nn/param.h"

namespace mw::nn {

// What matrix products compute in.
struct ComputeOptions {
  DType dtype = DType::kF32;                 // f32 or bf16
  std::string matmul_precision = "default";  // "default" or "highest"; see ops/dot_general.h
  double lora_scale = 1;                     // see nn/lora.h
};

// Linear layer without bias.
//
//   y[…, f] = sum_d x[…, d] * w[f, d]
//
// The dims of tokens stay apart, so that each can be sharded; DotGeneral's lowering
// merges them where that makes a plain matrix product. The weight is cast at its
// use: its gradient comes in the weight's own dtype.
//
// Shapes (global): x […, D]; w_FD (Hugging Face's
// layout), of floats or int8; returns y […, F] in `out_dtype`, by default the compute dtype.
// Sharding: leading dims pass through; a sharded D leaves y unreduced.
// Cost: 2 * elements(y) * D flops.
// Errors: GraphError(kInvalidArgument) when the shapes do not fit.
graph::Value Linear(graph::Value x, const Weight& w_FD, const ComputeOptions& options);
graph::Value Linear(graph::Value x, const Weight& w_FD, const ComputeOptions& options,
                    DType out_dtype);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_LINEAR_H_
