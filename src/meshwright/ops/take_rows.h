#ifndef MESHWRIGHT_OPS_TAKE_ROWS_H_
#define MESHWRIGHT_OPS_TAKE_ROWS_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Looks up rows of a table, e.g. embeddings of tokens.
//
//   y[i…, d…] = table[clamp(ids[i…], 0, V - 1), d…]
//
// The gradient adds each cotangent row into the table's row (ScatterAddRows): of the
// gradient's accumulator, in place, where the table has no other use.
//
// Shapes (global): table [V, d…] any type, V >= 1; ids [i…] integers; returns
// table's dtype[i…, d…]. An id outside 0 … V - 1 is clamped, as in StableHLO.
// Sharding: special: d and i pass through; in a table whose rows are sharded each
// device looks up the rows it has and the result is unreduced.
// Errors: GraphError(kInvalidArgument) when ids are not integers or the table has
// no rows.
// Source: StableHLO specification, gather.
Value TakeRows(Value table, Value ids);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_TAKE_ROWS_H_
