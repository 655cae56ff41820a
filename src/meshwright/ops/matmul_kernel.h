// How dot_general calls its kernel on CPUs.
#ifndef MESHWRIGHT_OPS_MATMUL_KERNEL_H_
#define MESHWRIGHT_OPS_MATMUL_KERNEL_H_

#include <optional>
#include <string>

#include "meshwright/ops/dot_general.h"

namespace mw::ops {

// Calls `meshwright.matmul` (kernels/matmul.cc) and returns the name of the result; nullopt where
// the target has no kernels, where XLA's own code is as good (small products) and where the
// kernel cannot: f64, and contracted dims that are no single dim of both operands.
std::optional<std::string> CallMatmulKernel(LowerContext& ctx, const DotDims& dims);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_MATMUL_KERNEL_H_
