#ifndef MESHWRIGHT_NN_LINEAR_H_
#define MESHWRIGHT_NN_LINEAR_H_

#include <string>

#include "meshwright/graph/graph.h"

namespace mw::nn {

// What matrix products compute in.
struct ComputeOptions {
  DType dtype = DType::kF32;                 // f32 or bf16
  std::string matmul_precision = "default";  // "default" or "highest"; see ops/dot_general.h
};

// Linear layer without bias.
//
//   y[m, f] = sum_d x[m, d] * w[f, d]
//
// Tokens come flattened to one dim, so that forward and backward are plain matrix
// products without layout changes. The weight is cast at its use: its gradient
// comes in the weight's own dtype.
//
// Shapes (global): x_MD; w_FD (Hugging Face's layout); returns y_MF in `out_dtype`,
// by default the compute dtype.
// Sharding: a sharded D leaves y unreduced.
// Cost: 2 * M * F * D flops.
graph::Value Linear(graph::Value x_MD, graph::Value w_FD, const ComputeOptions& options);
graph::Value Linear(graph::Value x_MD, graph::Value w_FD, const ComputeOptions& options,
                    DType out_dtype);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_LINEAR_H_
