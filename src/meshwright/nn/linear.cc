#include "meshwright/nn/linear.h"

#include "meshwright/ops/convert.h"
#include "meshwright/ops/dot_general.h"

namespace mw::nn {

graph::Value Linear(graph::Value x_MD, graph::Value w_FD, const ComputeOptions& options) {
  return Linear(x_MD, w_FD, options, options.dtype);
}

graph::Value Linear(graph::Value x_MD, graph::Value w_FD, const ComputeOptions& options,
                    DType out_dtype) {
  return ops::Einsum("md,fd->mf", ops::Convert(x_MD, options.dtype),
                     ops::Convert(w_FD, options.dtype), out_dtype, options.matmul_precision);
}

}  // namespace mw::nn
