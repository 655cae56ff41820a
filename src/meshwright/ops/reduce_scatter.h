#ifndef MESHWRIGHT_OPS_REDUCE_SCATTER_H_
#define MESHWRIGHT_OPS_REDUCE_SCATTER_H_

#include "meshwright/ops/collective.h"

namespace mw::ops {

// Sums the parts of a group and leaves each device its slice of the sum along a
// dim, in the group's order.
//
// Shapes (local): x any shape whose dim `dim` the group size divides; returns x's
// dtype with that dim divided.
// Cost: x's bytes, less the result's, sent per device.
// Errors: GraphError(kInvalidArgument) for a dim out of range or not divisible, or
// groups that are no partition of the devices.
Value ReduceScatter(Value x, int64_t dim, const CollectiveGroups& groups);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_REDUCE_SCATTER_H_
