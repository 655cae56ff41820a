#ifndef MESHWRIGHT_OPS_MATERIALIZE_H_
#define MESHWRIGHT_OPS_MATERIALIZE_H_

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// The identity, of a value that is made once and lies in memory: what reads it does not make it
// again. TPUs' compiler fuses elementwise ops into each product that reads them, and makes the
// operand of a tile anew for every tile of the result; of wide results that costs more than the
// product (docs/kernels.md has numbers). So does its gradient, in the backward pass.
//
// Shapes (global): x any type; returns the same type.
// Sharding: elementwise; stays unreduced.
// Lowering: stablehlo.optimization_barrier for TPUs; nothing elsewhere, where operands of products
// lie in memory anyway.
// Errors: none.
Value Materialize(Value x);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_MATERIALIZE_H_
