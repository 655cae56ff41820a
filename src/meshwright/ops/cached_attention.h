#ifndef MESHWRIGHT_OPS_CACHED_ATTENTION_H_
#define MESHWRIGHT_OPS_CACHED_ATTENTION_H_

#include <memory>
#include <string>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

struct CachedAttentionOperands {
  Value q_BTKGH, k_BTKH, v_BTKH;       // of the new tokens
  Value k_cache_LBSKH, v_cache_LBSKH;  // of all layers
  Value layer;                         // s32 scalar
  Value start_B;                       // s32: tokens of each row that are in the cache
};

struct CachedAttentionResult {
  Value out_BTKGH;
  Value k_cache_LBSKH, v_cache_LBSKH;
};

// What generation does in a layer: writes the keys and values of T new tokens of each row into
// the slots start[b] … start[b] + T - 1 of the caches, and attends, token t to slots 0 … start[b] +
// t.
//
// Shapes (global): G query heads share each of K key-value heads; q, k, v of one float dtype,
// caches of one, which new keys and values are cast to; returns out of q's dtype and the caches.
// Sharding: B and K pass through; L, T, S, G and H are whole.
// Precision: scores and softmax in f32; cached values are cast to q's dtype, and probabilities
// rounded to it. `precision` is of the products, see dot_general.h.
// Cost: caches are updated in place where they have no other use. Reads S slots of the layer;
// on CPUs, by a kernel, those in use alone. No gradient.
// REQUIRES: start[b] + T <= S; a start beyond that is moved down to fit, over slots in use.
// Errors: GraphError(kInvalidArgument) when the shapes or dtypes do not fit.
CachedAttentionResult CachedAttention(const CachedAttentionOperands& operands, double scale,
                                      const std::string& precision);

// What it is where there is no kernel: a graph with the node's operands as parameters and its
// results as outputs, made of other ops.
std::unique_ptr<Graph> PlainCachedAttention(const Node& node);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_CACHED_ATTENTION_H_
