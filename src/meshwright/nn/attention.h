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

// Who may see whom in a cache of S slots, when T new tokens of row b stand in the
// slots start[b], start[b] + 1, …
//
//   mask[b, i, s] = s <= start[b] + i
//
// Shapes (global): start_B s32; returns pred [B, T, S].
graph::Value CacheMask(graph::Value start_B, int64_t num_tokens, int64_t num_slots);

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

// Writes new keys or values of layer `layer` into a stacked cache: those of row b
// into the slots start[b] … start[b] + T - 1.
//
// Shapes (global): cache_LBSKH; layer s32 scalar; update_BTKH (cast to the cache's
// dtype); start_B s32; returns the cache's type.
// Cost: in place where the cache has no other use; one small update per row.
// REQUIRES: start[b] + T <= S; a start beyond that is moved down to fit, over slots
// that are in use.
graph::Value UpdateCache(graph::Value cache_LBSKH, graph::Value layer, graph::Value update_BTKH,
                         graph::Value start_B);

// Layer `layer` of a stacked cache: [B, S, K, H].
graph::Value CacheLayer(graph::Value cache_LBSKH, graph::Value layer);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_ATTENTION_H_
