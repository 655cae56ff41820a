#ifndef MESHWRIGHT_OPS_ALL_TO_ALL_H_
#define MESHWRIGHT_OPS_ALL_TO_ALL_H_

#include "meshwright/ops/collective.h"

namespace mw::ops {

// Moves a group's sharding from one dim to another: each device cuts its part
// along `split_dim` and joins what it gets along `concat_dim`, in the group's order.
//
// Shapes (local): x any shape whose dim `split_dim` the group size divides; returns
// x's dtype with that dim divided and dim `concat_dim` multiplied.
// Cost: x's bytes, less one part, sent per device.
// Errors: GraphError(kInvalidArgument) for a dim out of range or not divisible, or
// groups that are no partition of the devices.
Value AllToAll(Value x, int64_t split_dim, int64_t concat_dim, const CollectiveGroups& groups);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ALL_TO_ALL_H_
