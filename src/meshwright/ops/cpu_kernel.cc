#include "meshwright/ops/cpu_kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mw::ops {

bool HasCpuKernels(const Target& target) { return target.kernels && target.platform == "cpu"; }

bool CpuKernelsTake(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

std::string F64Attribute(double value) {
  return fmt::format("{} : f64", stablehlo::ScalarLiteral(DType::kF64, value));
}

std::vector<std::string> CallCpuKernel(
    LowerContext& ctx, const std::string& name, const std::vector<KernelBuffer>& operands,
    const std::vector<KernelBuffer>& results,
    const std::vector<std::pair<std::string, std::string>>& config,
    const std::vector<int>& aliases) {
  stablehlo::CustomCallText call;
  call.target = name;
  for (size_t i = 0; i < operands.size(); ++i) {
    call.operands.push_back(ctx.operand(static_cast<int>(i)));
    call.operand_types.push_back(operands[i].type);
    call.operand_orders.push_back(operands[i].minor_to_major);
  }
  for (const KernelBuffer& result : results) {
    call.result_types.push_back(result.type);
    call.result_orders.push_back(result.minor_to_major);
  }
  std::vector<std::string> attributes;
  for (const auto& [key, value] : config) attributes.push_back(fmt::format("{} = {}", key, value));
  call.attributes =
      fmt::format("api_version = 4 : i32, backend_config = {{{}}}", fmt::join(attributes, ", "));
  call.aliases = aliases;
  return stablehlo::CustomCall(&ctx.writer(), call);
}

std::vector<std::string> CallCpuKernel(
    LowerContext& ctx, const std::string& name,
    const std::vector<std::pair<std::string, std::string>>& config,
    const std::vector<int>& aliases) {
  std::vector<KernelBuffer> operands, results;
  for (const Value& operand : ctx.node().operands()) operands.push_back({operand.type()});
  for (const TensorType& type : ctx.node().types()) results.push_back({type});
  return CallCpuKernel(ctx, name, operands, results, config, aliases);
}

}  // namespace mw::ops
