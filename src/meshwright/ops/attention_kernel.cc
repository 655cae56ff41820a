#include "meshwright/ops/attention_kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
  const std::string attributes = fmt::format(
      "<{{backend_config = {}, call_target_name = \"tpu_custom_call\", has_side_effect = false, "
      "operand_layouts = {}, result_layouts = {}}}>",
      stablehlo::StringLiteral(config), stablehlo::RowMajorLayouts(operand_types),
      stablehlo::RowMajorLayouts(types));
  const std::string name = ctx.writer().NewName();
  // The compiler's name for the call, after where the op stands if that is said.
  const std::string around = ctx.writer().location();
  ctx.writer().set_location(around.empty() ? kernel.name
                                           : fmt::format("{}/{}", around, kernel.name));
  ctx.writer().Line(
      fmt::format("{}{} = \"stablehlo.custom_call\"({}) {} : {} -> {}", name,
                  types.size() == 1 ? "" : fmt::format(":{}", types.size()), fmt::join(names, ", "),
                  attributes, stablehlo::TypeList(operand_types),
                  types.size() == 1 ? stablehlo::TypeText(types[0]) : stablehlo::TypeList(types)));
  ctx.writer().set_location(around);
  if (types.size() == 1) return {name};
  std::vector<std::string> results;
  for (size_t i = 0; i < types.size(); ++i) results.push_back(fmt::format("{}#{}", name, i));
  return results;
}

}  // namespace mw::ops
