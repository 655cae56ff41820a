#ifndef MESHWRIGHT_OPS_OPTIMIZATION_BARRIER_H_
#define MESHWRIGHT_OPS_OPTIMIZATION_BARRIER_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// The identity on several values, which a compiler moves nothing across: what uses
// a result runs after all operands are there.
//
// Shapes (global): any types; returns one value per operand of its type; an empty
// list gives an empty one.
// Sharding: result i as operand i, whatever the others are; stays unreduced.
// Source: StableHLO specification, optimization_barrier.
std::vector<Value> OptimizationBarrier(const std::vector<Value>& values);

// Lowers a node whose result i is its operand i to a barrier.
void LowerAsBarrier(LowerContext& ctx);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_OPTIMIZATION_BARRIER_H_
