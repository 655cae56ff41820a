// How attention and attention_grad call their kernels, on TPUs (mosaic/) and CPUs (kernels/).
#ifndef MESHWRIGHT_OPS_ATTENTION_KERNEL_H_
#define MESHWRIGHT_OPS_ATTENTION_KERNEL_H_

#include <string>
#include <vector>

#include "meshwright/mosaic/flash_attention.h"
#include "meshwright/ops/op_def.h"

namespace mw::ops {

// Whether `ctx` lowers for a CPU with kernels, and they take the node's dtype.
bool HasCpuAttentionKernel(LowerContext& ctx);

// Calls the kernel `name` for CPUs on all operands of the node; returns the names of its results.
std::vector<std::string> CallCpuAttentionKernel(LowerContext& ctx, const std::string& name);

// Whether `ctx` lowers for TPUs, which have the kernels. Fails, with a sentence, where it does and
// they do not take the node's sizes.
bool HasAttentionKernel(LowerContext& ctx);

// The sizes of the node's operands q, k, v, …
mosaic::FlashAttention FlashAttentionOf(const Node& node);

// Calls `kernel` on q, k, v and segments (as the blocks of queries and as those of keys),
// then on operands 4, 5, … of the node; returns the names of results of `types`.
std::vector<std::string> CallAttentionKernel(LowerContext& ctx, const mosaic::FlashKernel& kernel,
                                             const std::vector<TensorType>& types);

}  // namespace mw::ops

#endif  // MESHWRIGHT_OPS_ATTENTION_KERNEL_H_
