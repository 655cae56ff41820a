#ifndef MESHWRIGHT_OPS_SUM_OF_SQUARES_H_
#define MESHWRIGHT_OPS_SUM_OF_SQUARES_H_

#include <memory>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// sum x^2 over the dims from `first_dim` on, in two stages, so that a long sum does not
// swallow its small terms.
//
// Shapes (global): x f32; returns its dims before `first_dim`.
// Sharding: a sharded dim that is summed over leaves the result unreduced.
// Precision: f32.
Value StagedSumOfSquares(Value x, int first_dim = 0);

// sum * scale, rounded to `dtype`.
//
// Shapes (global): sum f32; scale f32 scalar; returns sum's type.
Value ScaledGradient(Value sum, Value scale, DType dtype);

// The sum of squares of ScaledGradient(sum, scale, dtype), which on CPUs with kernels is read and
// not written: a gradient's share in the norm of all.
//
// Shapes (global): sum f32; scale f32 scalar; returns f32 scalar.
// Sharding: a sharded dim leaves the result unreduced.
// Precision: f32, added up in stages.
// Errors: GraphError(kInvalidArgument) when the types are others. No gradient.
Value SumOfSquares(Value sum, Value scale, DType dtype);

// What SumOfSquares is where there is no kernel: a graph with the node's operands as parameters and
// its result as output, made of other ops.
std::unique_ptr<Graph> PlainSumOfSquares(const Node& node);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_SUM_OF_SQUARES_H_
