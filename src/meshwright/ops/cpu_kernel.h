// How ops call kernels on CPUs (the layer `kernels`).
#ifndef MESHWRIGHT_OPS_CPU_KERNEL_H_
#define MESHWRIGHT_OPS_CPU_KERNEL_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Whether ops lower to calls of kernels for CPUs.
bool HasCpuKernels(const Target& target);

// Whether kernels compute with tensors of `dtype`: f32 and bf16.
bool CpuKernelsTake(DType dtype);

// A double as an attribute of a kernel.
std::string F64Attribute(double value);

// An operand or a result of a kernel.
struct KernelBuffer {
  TensorType type;
  // Its dims from the fastest to the slowest in memory; empty for row-major.
  std::vector<int64_t> minor_to_major = {};
};

// Calls the kernel `name` on the operands of the node, one after the other, with the attributes
// `config` (names and MLIR values); returns the names of the results. Result i takes over the
// buffer of operand aliases[i], where that is not -1.
std::vector<std::string> CallCpuKernel(
    LowerContext& ctx, const std::string& name, const std::vector<KernelBuffer>& operands,
    const std::vector<KernelBuffer>& results,
    const std::vector<std::pair<std::string, std::string>>& config,
    const std::vector<int>& aliases = {});

// The same with all operands and results of the node, row-major.
std::vector<std::string> CallCpuKernel(
    LowerContext& ctx, const std::string& name,
    const std::vector<std::pair<std::string, std::string>>& config,
    const std::vector<int>& aliases = {});

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_CPU_KERNEL_H_
