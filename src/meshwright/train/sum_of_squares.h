#ifndef MESHWRIGHT_TRAIN_SUM_OF_SQUARES_H_
#define MESHWRIGHT_TRAIN_SUM_OF_SQUARES_H_

#include "meshwright/graph/graph.h"

namespace mw::train {

// sum x^2 over the dims from `first_dim` on, in two stages, so that a long sum does not
// swallow its small terms.
//
// Shapes (global): x f32; returns its dims before `first_dim`.
// Sharding: a sharded dim that is summed over leaves the result unreduced.
// Precision: f32.
graph::Value SumOfSquares(graph::Value x, int first_dim = 0);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_SUM_OF_SQUARES_H_
