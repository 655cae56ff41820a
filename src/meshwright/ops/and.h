#ifndef MESHWRIGHT_OPS_AND_H_
#define MESHWRIGHT_OPS_AND_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Logical and of pred, bitwise and of integers.
//
// Shapes (global): a, b the same pred or integer type; returns it.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when the types differ or a is a float.
Value And(Value a, Value b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_AND_H_
