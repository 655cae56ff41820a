#include "meshwright/nn/linear.h"

#include "meshwright/ops/convert.h"
#include "meshwright/ops/dot_general.h"
#include "meshwright/ops/quantized_dot.h"

namespace mw::nn {

graph::Value Linear(graph::Value x, const Weight& w_FD, const ComputeOptions& options) {
  return Linear(x, w_FD, options, options.dtype);
}

graph::Value Linear(graph::Value x, const Weight& w_FD, const ComputeOptions& options,
                    DType out_dtype) {
  x = ops::Convert(x, options.dtype);
  if (w_FD.scales) {
    return ops::QuantizedDot(x, {w_FD.data, w_FD.scales}, out_dtype, options.matmul_precision);
  }
  return ops::DotGeneral(x, ops::Convert(w_FD.data, options.dtype), {{}, {}, {x.rank() - 1}, {1}},
                         out_dtype, options.matmul_precision);
}

}  // namespace mw::nn
