// TakeAlongLast: one element of each row.
#ifndef MESHWRIGHT_OPS_TAKE_ALONG_LAST_H_
#define MESHWRIGHT_OPS_TAKE_ALONG_LAST_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Picks one element of the last dimension, e.g. the logit of the target token.
//
//   y[i…] = x[i…, ids[i…]]
//
// A composition of compare, select and sum over the last dimension: it fuses into
// whatever makes x, so that x need not be stored, and a sharded last dimension
// costs one all-reduce of [i…] instead of a gather of x.
//
// Shapes (global): x [i…, V] a number type; ids [i…] integers; returns x's
// dtype[i…]. An id outside 0 … V - 1 gives 0.
// Errors: GraphError(kInvalidArgument) when x's leading dims are not those of
// ids or ids are not integers.
Value TakeAlongLast(Value x, Value ids);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_TAKE_ALONG_LAST_H_
