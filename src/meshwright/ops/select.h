#ifndef MESHWRIGHT_OPS_SELECT_H_
#define MESHWRIGHT_OPS_SELECT_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Chooses between two tensors.
//
//   y = pred ? on_true : on_false
//
// Shapes (global): pred is pred[] (one choice for all) or pred[on_true.dims];
// on_true and on_false the same type, which it returns.
// Sharding: elementwise; a scalar pred is whole and reduced.
// Errors: GraphError(kInvalidArgument) when pred is not of type pred, has another
// shape, or the two types differ.
Value Select(Value pred, Value on_true, Value on_false);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SELECT_H_
