#ifndef MESHWRIGHT_OPS_ALL_GATHER_H_
#define MESHWRIGHT_OPS_ALL_GATHER_H_

#include "meshwright/ops/collective.h"

namespace mw::ops {

// Joins the parts of a group along a dim, in the group's order; each device then
// has all of them.
//
// Shapes (local): x any shape; returns x's dtype with dim `dim` times the group
// size.
// Cost: the result's bytes, less x's, received per device.
// Errors: GraphError(kInvalidArgument) for a dim out of range or groups that are
// no partition of the devices.
Value AllGather(Value x, int64_t dim, const CollectiveGroups& groups);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ALL_GATHER_H_
