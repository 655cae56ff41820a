#ifndef MESHWRIGHT_OPS_SCATTER_ADD_ROWS_H_
#define MESHWRIGHT_OPS_SCATTER_ADD_ROWS_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// What happens to an update whose id names no row.
enum class OutOfRange {
  kDrop,   // it is left out
  kClamp,  // it goes to the first or last row, as TakeRows reads
};

// Adds updates into rows; ids may repeat.
//
//   y[v, d…] = x[v, d…] + sum over i… with ids[i…] = v of updates[i…, d…]
//
// Shapes (global): x [V, d…] a number type; ids [i…] integers; updates
// x's dtype[i…, d…]; returns x's type.
// Sharding: special: d passes through; sharded i leave the result unreduced; with
// sharded rows each device adds what falls into its own.
// Precision: sums in x's dtype, in an order the device chooses.
// Cost: CPU plugins add one row at a time.
// Errors: GraphError(kInvalidArgument) when the shapes or dtypes do not fit.
// Source: StableHLO specification, scatter.
Value ScatterAddRows(Value x, Value ids, Value updates,
                     OutOfRange out_of_range = OutOfRange::kDrop);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SCATTER_ADD_ROWS_H_
