#ifndef MESHWRIGHT_NN_RMS_NORM_H_
#define MESHWRIGHT_NN_RMS_NORM_H_

#include "meshwright/graph/graph.h"

namespace mw::nn {

// RMS normalization over the last dimension.
//
//   y = x / sqrt(mean(x^2) + eps) * scale
//
// Shapes (global): x [..., D] f32|bf16; scale_D any float; returns x's type.
// Sharding: leading dims pass through; a sharded D costs one all-reduce of the
// leading dims.
// Precision: statistics and the product in f32, one rounding at the end.
// Errors: GraphError(kInvalidArgument) when scale is not [D].
// Source: Zhang, Sennrich 2019, arXiv:1910.07467.
graph::Value RmsNorm(graph::Value x, graph::Value scale_D, double eps);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_RMS_NORM_H_
