// Causal self-attention over packed rows, and over a key-value cache.
#ifndef MESHWRIGHT_NN_ATTENTION_H_
#define MESHWRIGHT_NN_ATTENTION_H_

#include <string>

#include "meshwright/graph/graph.h"
#include "meshwright/nn/linear.h"

namespace mw::nn {

// Who may see whom in packed rows.
//
//   mask[b, i, j] = j <= i and segment_ids[b, i] == segment_ids[b, j]
//
// i and j count places in the row, not positions, so that documents packed into a
// row never see one another whatever their positions. Padding (one segment of its
// own, id 0) sees itself: no row of the mask is empty.
//
// Shapes (global): segment_ids_BT integers; returns pred [B, T, T].
graph::Value CausalSegmentMask(graph::Value segment_ids_BT);

// Grouped-query attention: query head n attends with key-value head n / (N/K),
// which is never repeated in memory.
//
//   out[b, t, n] = sum_s softmax_s(q[b, t, n] . k[b, s, n'] / sqrt(H) where mask[b, t, s]) v[b, s,
//   n']
//
// Shapes (global): q_BTNH; k_BSKH, v_BSKH of q's dtype; mask_BTS pred with at least
// one true per (b, t); returns [B, T, N, H] of q's dtype.
// Sharding: B and heads pass through (N's axes must divide K); S and H are whole.
// Precision: scores and softmax in f32; probabilities are rounded to q's dtype.
// Cost: 4 * B * N * T * S * H flops; a [B, N, T, S] score matrix in memory.
// Errors: GraphError(kInvalidArgument) when N is not a multiple of K or shapes differ.
// Source: Ainslie et al. 2023, arXiv:2305.13245.
graph::Value Attention(graph::Value q_BTNH, graph::Value k_BSKH, graph::Value v_BSKH,
                       graph::Value mask_BTS, const ComputeOptions& options);

// Attention of packed rows, masked by CausalSegmentMask, as the one op of ops/attention.h: on
// TPUs a kernel that never holds the scores.
//
// Shapes (global): q_BTNH; k_BTKH, v_BTKH of q's dtype; segment_ids_BT s32; returns
// [B, T, N, H] of q's dtype.
// Sharding: B and heads pass through (N's axes must divide K); T and H are whole.
// Precision: as Attention.
// Cost: as ops::Attention. The backward pass reads q, k, v, the result and the log-sum-exp of
// its scores; the latter two have the name `residual_name` for rematerialization policies.
// Errors: GraphError(kInvalidArgument) when N is not a multiple of K or shapes differ.
graph::Value FlashAttention(graph::Value q_BTNH, graph::Value k_BTKH, graph::Value v_BTKH,
                            graph::Value segment_ids_BT, const ComputeOptions& options,
                            const std::string& residual_name);

// Keys and values of what has been decoded, of all layers: [L, B, S, K, H].
struct CachedKeys {
  graph::Value k, v;
};

// What generation does in a layer, as the one op of ops/cached_attention.h: the keys and values of
// new tokens go into the slots of `cache` from start[b] on, which the tokens attend to.
//
// Shapes (global): q_BTNH; k_BTKH, v_BTKH of q's dtype; layer s32 scalar; start_B s32; returns
// [B, T, N, H] of q's dtype and makes `cache` the new one.
// REQUIRES, Precision, Cost, Errors: as there.
graph::Value CachedAttention(graph::Value q_BTNH, graph::Value k_BTKH, graph::Value v_BTKH,
                             graph::Value layer, graph::Value start_B,
                             const ComputeOptions& options, CachedKeys* cache);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_ATTENTION_H_
