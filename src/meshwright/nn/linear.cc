#include "meshwright/nn/linear.h"

#include "meshwright/ops/convert.h"
#include "meshwright/ops/dot_general.h"

namespace mw::nn {

graph::Value Linear(graph::Value x, graph::Value w_FD, const ComputeOptions& options) {
  return Linear(x, w_FD, options, options.dtype);
}

graph::Value Linear(graph::Value x, graph::Value w_FD, const ComputeOptions& options,
                    DType out_dtype) {
  return ops::DotGeneral(ops::Convert(x, options.dtype), ops::Convert(w_FD, options.dtype),
                         {{}, {}, {x.rank() - 1}, {1}}, out_dtype, options.matmul_precision);
}

}  // namespace mw::nn
