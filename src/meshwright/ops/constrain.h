#ifndef MESHWRIGHT_OPS_CONSTRAIN_H_
#define MESHWRIGHT_OPS_CONSTRAIN_H_

#include <string>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// The identity, which pins the sharding of a value and of its cotangent.
//
// `axes` holds the logical axis of each dim of the result, "" for a dim without one;
// `cotangent_axes` holds those of the cotangent that leaves on x's side. Both lists
// are equal but where a value is redistributed on purpose: what gathers a dim on
// the way forward scatters it on the way back.
//
// Shapes (global): x any type; returns the same type.
// Sharding: special: the result has the spec that the rules give for `axes`,
// whatever x has; nothing is unreduced in it.
// Cost: the redistribution from x's spec; on one device none, it is not in the
// compiled program.
// Errors: GraphError(kInvalidArgument) when a list does not have one name per dim.
Value Constrain(Value x, std::vector<std::string> axes, std::vector<std::string> cotangent_axes);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_CONSTRAIN_H_
