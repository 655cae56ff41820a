#ifndef MESHWRIGHT_NN_CONSTRAIN_H_
#define MESHWRIGHT_NN_CONSTRAIN_H_

#include <string>
#include <vector>

#include "meshwright/graph/graph.h"

namespace mw::nn {

// States the logical axis of each dim of an activation; "" for a dim without one.
//
// The identity: types take their shardings from parameters and inputs by the ops'
// rules. The names are checked, so that a model cannot say something else than
// what its activations are.
//
// Shapes (global): x any type, one name per dim; returns x.
// Errors: GraphError(kInvalidArgument) when the count differs from x's rank, or
// naming a logical axis that does not exist.
graph::Value Constrain(graph::Value x, const std::vector<std::string>& axes);

// The logical axes of activations.
const std::vector<std::string>& ActivationAxes();

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_CONSTRAIN_H_
