#ifndef MESHWRIGHT_OPS_NAME_H_
#define MESHWRIGHT_OPS_NAME_H_

#include <string>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// The identity, with a name by which a rematerialization policy may ask to keep
// the value.
//
// Shapes (global): x any type; returns the same type.
// Sharding: elementwise; stays unreduced.
// Cost: none; it is not in the compiled program.
// Errors: GraphError(kInvalidArgument) when `name` is empty.
Value Name(Value x, std::string name);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_NAME_H_
