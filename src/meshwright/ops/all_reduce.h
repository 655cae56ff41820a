#ifndef MESHWRIGHT_OPS_ALL_REDUCE_H_
#define MESHWRIGHT_OPS_ALL_REDUCE_H_

#include <string>

#include "meshwright/ops/collective.h"

namespace mw::ops {

// Combines the parts that the devices of a group hold; each then has the result.
//
//   y[i] = kind over the group of x[i]
//
// Shapes (local): x any shape; returns x's type.
// Cost: about twice x's bytes sent and received per device.
// Errors: GraphError(kInvalidArgument) for groups that are no partition of the
// devices, or a kind other than add, max, min, mul, and, or.
Value AllReduce(Value x, const CollectiveGroups& groups, const std::string& kind = "add");

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ALL_REDUCE_H_
