#ifndef MESHWRIGHT_NN_CONSTRAIN_H_
#define MESHWRIGHT_NN_CONSTRAIN_H_

#include <string>
#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::nn {

// ops::Constrain with the logical axes of activations: pins an activation to the
// sharding that the rules give for `axes` ("" for a dim without one), and its
// cotangent to that of `cotangent_axes`, by default the same.
//
// Shapes (global): x any type, one name per dim; returns its type.
// Cost: none on one device.
// Errors: GraphError(kInvalidArgument) when a count differs from x's rank, or
// naming a logical axis that does not exist.
graph::Value Constrain(graph::Value x, const std::vector<std::string>& axes);
graph::Value Constrain(graph::Value x, const std::vector<std::string>& axes,
                       const std::vector<std::string>& cotangent_axes);

// The logical axes of activations. activation_length is the tokens of a row where every
// token of it is at hand (within attention and the MLP), activation_norm_length the same dim in
// the residual stream and the norms, which may be sharded further (sequence parallelism).
// activation_embed_and_logits_batch is the batch where tokens meet the vocabulary: axes of
// the batch may shard the vocabulary there instead. Rules that do not name it give it those
// of activation_batch.
const std::vector<std::string>& ActivationAxes();

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_CONSTRAIN_H_
