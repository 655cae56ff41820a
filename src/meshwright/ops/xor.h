#ifndef MESHWRIGHT_OPS_XOR_H_
#define MESHWRIGHT_OPS_XOR_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Logical exclusive or of pred, bitwise exclusive or of integers.
//
// Shapes (global): a, b the same pred or integer type; returns it.
// Sharding: elementwise.
// Errors: GraphError(kInvalidArgument) when the types differ or a is a float.
Value Xor(Value a, Value b);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_XOR_H_
