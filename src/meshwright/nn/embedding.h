#ifndef MESHWRIGHT_NN_EMBEDDING_H_
#define MESHWRIGHT_NN_EMBEDDING_H_

#include "meshwright/graph/graph.h"

namespace mw::nn {

// Rows of the embedding table, cast after the lookup: only what is used is cast,
// and the table's gradient is summed in its own dtype.
//
// Shapes (global): table_VD float; tokens [i…] integers in 0 … V - 1 (others are
// clamped); returns dtype[i…, D].
// Sharding: V sharded leaves the result unreduced.
graph::Value Embed(graph::Value table_VD, graph::Value tokens, DType dtype);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_EMBEDDING_H_
