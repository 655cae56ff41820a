#ifndef MESHWRIGHT_OPS_CONSTANT_H_
#define MESHWRIGHT_OPS_CONSTANT_H_

#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// A tensor filled with one value.
//
// Shapes (global): returns dtype[dims].
// Sharding: creation; every consumer gets its own.
Value Full(Graph& graph, DType dtype, Dims dims, double value);

// Full with the dtype and dims of `like`, in its graph.
Value FullLike(Value like, double value);

// A small tensor of given values in row-major order, written into the program.
//
// Shapes (global): returns dtype[dims].
// Errors: GraphError(kInvalidArgument) when the count of values is not the
// product of dims.
Value Constant(Graph& graph, DType dtype, Dims dims, std::vector<double> values);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_CONSTANT_H_
