#ifndef MESHWRIGHT_NN_SWIGLU_H_
#define MESHWRIGHT_NN_SWIGLU_H_

#include "meshwright/graph/graph.h"
#include "meshwright/nn/linear.h"

namespace mw::nn {

// y = x * logistic(x), in f32 with one rounding at the end. Shapes: any float type.
graph::Value Silu(graph::Value x);

// Gated MLP.
//
//   y = (silu(x Wg^T) * (x Wu^T)) Wd^T
//
// Marks mlp_gate, mlp_up and mlp_out for rematerialization.
//
// Shapes (global): x_MD; gate_FD, up_FD; down_DF; returns y_MD in the compute dtype.
// Sharding: F sharded leaves y unreduced.
// Cost: 6 * M * D * F flops.
// Source: Shazeer 2020, arXiv:2002.05202.
graph::Value SwigluMlp(graph::Value x_MD, graph::Value gate_FD, graph::Value up_FD,
                       graph::Value down_DF, const ComputeOptions& options);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_SWIGLU_H_
