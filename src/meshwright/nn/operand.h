#ifndef MESHWRIGHT_NN_OPERAND_H_
#define MESHWRIGHT_NN_OPERAND_H_

#include <cstdint>

#include "meshwright/graph/graph.h"

namespace mw::nn {

// From this width of a model on its products' operands are made once. Of narrower ones making them
// again for each tile costs less than to write and read them (docs/kernels.md has both).
inline constexpr int64_t kWideModel = 2048;

// `x`, which products read, itself the result of elementwise ops or read by them: materialized
// (ops/materialize.h) where the residual stream's `width` is kWideModel or more.
//
// Shapes (global): x any type; returns the same type.
graph::Value Operand(graph::Value x, int64_t width);

}  // namespace mw::nn

#endif  // MESHWRIGHT_NN_OPERAND_H_
