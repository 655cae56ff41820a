#ifndef MESHWRIGHT_NN_EMBEDDING_H_
#define MESHWRIGHT_NN_EMBEDDING_H_

#include "meshwright/graph/graph.h"
#include "meshwright/nn/param.h"

namespace mw::nn {

// Rows of the embedding table, cast after the lookup: only what is used is cast,
// and the table's gradient is summed in its own dtype.
//
// Shapes (global): table_VD floats or int8; tokens_BT integers in 0 … V - 1 (others are clamped);
// returns dtype[B, T, D].
// Sharding: pinned to {activation_batch, activation_norm_length, activation_embed}. Where V
// is sharded each device looks up what it has, and the sum goes there. Axes of the batch may
// shard V (activation_embed_and_logits_batch): then the tokens, and in the backward pass the
// result's gradient, are gathered over them rather than the table.
graph::Value Embed(const Weight& table_VD, graph::Value tokens_BT, DType dtype);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_EMBEDDING_H_
