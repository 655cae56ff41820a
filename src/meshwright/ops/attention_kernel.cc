#include "meshwright/ops/attention_kernel.h"

#include <fmt/format.h>

#include "meshwright/ops/cpu_kernel.h"

namespace mw::ops {

mosaic::FlashAttention FlashAttentionOf(const Node& node) {
  const TensorType& q = node.operand(0).type();
  mosaic::FlashAttention attention;
  attention.rows = q.dims[0];
  attention.kv_heads = q.dims[1];
  attention.groups = q.dims[2];
  attention.tokens = q.dims[3];
  attention.head_dim = q.dims[4];
  attention.dtype = q.dtype;
  attention.scale = node.attrs().Get<double>("scale");
  attention.highest = q.dtype == DType::kF32 && node.attrs().String("precision") == "highest";
  return attention;
}

bool HasAttentionKernel(LowerContext& ctx) {
  if (ctx.target().platform != "tpu") return false;
  if (const auto why = mosaic::WhyNotFlash(FlashAttentionOf(ctx.node()))) {
    ctx.node().Fail(fmt::format("there is no TPU kernel for it: {}", *why));
  }
  return true;
}

bool HasCpuAttentionKernel(LowerContext& ctx) {
  return HasCpuKernels(ctx.target()) && CpuKernelsTake(ctx.node().operand(0).dtype());
}

std::vector<std::string> CallCpuAttentionKernel(LowerContext& ctx, const std::string& name) {
  // In memory [B,T,K,G,H] and [B,T,K,H], as projections give them; sums as they are.
  const auto buffer = [](const TensorType& type) {
    KernelBuffer buffer{type};
    if (type.rank() == 5) buffer.minor_to_major = {4, 2, 1, 3, 0};
    return buffer;
  };
  const auto of_keys = [](const TensorType& type) { return KernelBuffer{type, {3, 1, 2, 0}}; };
  const Node& node = ctx.node();
  const bool gradient = node.num_operands() > 4;
  std::vector<KernelBuffer> operands, results;
  for (int i = 0; i < node.num_operands(); ++i) {
    const TensorType& type = node.operand(i).type();
    operands.push_back(i == 1 || i == 2 ? of_keys(type) : buffer(type));
  }
  for (size_t i = 0; i < node.types().size(); ++i) {
    results.push_back(gradient && i > 0 ? of_keys(node.types()[i]) : buffer(node.types()[i]));
  }
  const std::string scale = F64Attribute(node.attrs().Get<double>("scale"));
  return CallCpuKernel(ctx, name, operands, results, {{"scale", scale}});
}

std::vector<std::string> CallAttentionKernel(LowerContext& ctx, const mosaic::FlashKernel& kernel,
                                             const std::vector<TensorType>& types) {
  const Node& node = ctx.node();
  const TensorType& segments = node.operand(3).type();
  const TensorType rows(segments.dtype, {segments.dims[0], 1, segments.dims[1]});
  const std::string segment_rows =
      ctx.writer().Assign(fmt::format("stablehlo.reshape {} : ({}) -> {}", ctx.operand(3),
                                      stablehlo::TypeText(segments), stablehlo::TypeText(rows)));
  std::vector<std::string> names;
  std::vector<TensorType> operand_types;
  for (int i = 0; i < node.num_operands(); ++i) {
    for (int copy = 0; copy < (i == 3 ? 2 : 1); ++copy) {
      names.push_back(i == 3 ? segment_rows : ctx.operand(i));
      operand_types.push_back(i == 3 ? rows : node.operand(i).type());
    }
  }
  const std::string config = mosaic::BackendConfig(
      kernel.module, ctx.target().declare_kernel_costs ? &kernel.cost : nullptr, kernel.vmem_bytes);
  // The compiler's name for the call, after where the op stands if that is said.
  const std::string around = ctx.writer().location();
  ctx.writer().set_location(around.empty() ? kernel.name
                                           : fmt::format("{}/{}", around, kernel.name));
  std::vector<std::string> results = stablehlo::CustomCall(
      &ctx.writer(),
      {.target = "tpu_custom_call",
       .operands = names,
       .operand_types = operand_types,
       .result_types = types,
       .attributes = fmt::format("backend_config = {}", stablehlo::StringLiteral(config))});
  ctx.writer().set_location(around);
  return results;
}

}  // namespace mw::ops
