#ifndef MESHWRIGHT_OPS_OR_H_
#define MESHWRIGHT_OPS_OR_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Logical or of pred, bitwise or of integers.
//
// Shapes (global): a, b the same pred or integer type; returns it.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when the types differ or a is a float.
Value Or(Value a, Value b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_OR_H_
