#ifndef MESHWRIGHT_OPS_ADAMW_H_
#define MESHWRIGHT_OPS_ADAMW_H_

#include <memory>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

struct AdamWOptions {
  double b1 = 0.9;
  double b2 = 0.95;
  double eps = 1e-8;
  double decay = 0.1;  // 0 for parameters that do not decay
};

struct AdamWOperands {
  Value param;  // f32|bf16
  Value m, v;   // f32
  Value grad;   // f32, as AdamW takes it or, in an AdamWInPlace, as it was summed
  // f32 scalars: the learning rate, and 1 - b1^t and 1 - b2^t of update t.
  Value rate, m_correction, v_correction;
};

struct AdamWResult {
  Value param, m, v;
};

// One parameter's update, made of other ops.
//
//   m' = b1 m + (1 - b1) grad
//   v' = b2 v + (1 - b2) grad^2
//   param' = param - rate ((m' / m_correction) / (sqrt(v' / v_correction) + eps) + decay param)
//
// Shapes (global): all but the scalars have one shape; returns types of param, m and v.
// Precision: f32, with one rounding to the parameter's dtype at the end.
// Source: Loshchilov, Hutter 2019, arXiv:1711.05101.
AdamWResult AdamW(const AdamWOperands& operands, const AdamWOptions& options);

// How a sum of gradients becomes the gradient that AdamW takes.
struct GradientScale {
  Value scale;                // f32 scalar
  DType dtype = DType::kF32;  // sum * scale is rounded to it
  Value shrink;               // f32 scalar, which multiplies it after that
};

// The same in one pass over memory, for CPUs with kernels: of the sum of gradients in
// operands.grad, and only where the pred scalar `apply` holds; elsewhere param, m and v stay as
// they are.
//
// Sharding: as one elementwise op.
// Cost: reads four tensors and writes three; param, m and v are updated in place where they have no
// other use. No gradient.
// Errors: GraphError(kInvalidArgument) when shapes or dtypes do not fit.
AdamWResult AdamWInPlace(const AdamWOperands& operands, const GradientScale& gradient, Value apply,
                         const AdamWOptions& options);

// What AdamWInPlace is where there is no kernel: a graph with the node's operands as parameters and
// its results as outputs, made of other ops.
std::unique_ptr<Graph> PlainAdamWInPlace(const Node& node);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ADAMW_H_
