// Rotary position embeddings.
#ifndef MESHWRIGHT_NN_ROTARY_H_
#define MESHWRIGHT_NN_ROTARY_H_

#include "meshwright/graph/graph.h"
#include "meshwright/nn/rope_config.h"

namespace mw::nn {

// Cosines and sines of the rotation angles, computed once and used by every layer.
struct RotaryTables {
  graph::Value cos_BTh;  // f32 [B, T, H/2]
  graph::Value sin_BTh;
};

//   angle[b, t, i] = positions[b, t] * inverse_frequency[i]
//
// Shapes (global): positions_BT s32; tables f32 [B, T, head_dim / 2].
// Precision: f32, as in transformers; positions are exact below 2^24.
// Errors: GraphError(kInvalidArgument) for a config that RopeConfig::Validate refuses.
RotaryTables MakeRotaryTables(graph::Value positions_BT, const RopeConfig& config,
                              int64_t head_dim);

// Rotates dim i of each head with dim i + H/2 (Hugging Face's convention).
//
//   y[i] = x[i] cos - x[i + H/2] sin;  y[i + H/2] = x[i + H/2] cos + x[i] sin
//
// Shapes (global): x_BTNH float; returns its type.
// Sharding: B, T, N pass through; H is whole.
// Precision: the rotation in f32, one rounding at the end.
// Errors: GraphError(kInvalidArgument) when the tables do not fit x.
// Source: Su et al. 2021, arXiv:2104.09864.
graph::Value ApplyRotary(graph::Value x_BTNH, const RotaryTables& tables);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_ROTARY_H_
